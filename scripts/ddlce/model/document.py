"""From a YAML file to a checked value, or to one message that names the file and what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError

from ddlce import yamltext
from ddlce.errors import InputError, MachineError

T = TypeVar("T")


def load_yaml(
    path: Path, *, absent: InputError | None = None, hint: str = "correct the file", kind: str = ""
) -> Any:
    """The data in a YAML file; None in an empty one.

    Args:
        absent: what is raised where it is not there.
        hint: what to do about a file that is no YAML.
        kind: what the file is not, then: "a lock".

    Raises:
        InputError: absent, not UTF-8, or not YAML; names the line.
        MachineError: it cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise absent or InputError(f"{path}: there is no such file") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text ({error.reason})", hint) from error
    except OSError as error:
        raise MachineError(
            f"cannot read {path}: {error.strerror}", f"see what is there, and whose: ls -ld {path}"
        ) from error
    try:
        return yamltext.load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        problem = getattr(error, "problem", None) or str(error)
        no = f"not {kind}: " if kind else ""
        raise InputError(f"{where}: {no}not valid YAML: {problem}", hint) from error


def load_model(
    path: Path,
    validate: Callable[[Any], T],
    explain: Callable[[Any, ValidationError], InputError],
    *,
    absent: InputError | None = None,
    hint: str = "correct the file",
    kind: str = "",
) -> T:
    """What a YAML file says, checked; an empty file says {}.

    Args:
        validate: a pydantic model's, or a type adapter's.
        explain: the data and what is wrong with them → the error.
        absent, hint, kind: as `load_yaml` takes them.

    Raises:
        InputError, MachineError: as `load_yaml`; or what `explain` makes.
    """
    data = load_yaml(path, absent=absent, hint=hint, kind=kind)
    data = {} if data is None else data
    try:
        return validate(data)
    except ValidationError as error:
        raise explain(data, error) from error


def first_problem(error: ValidationError, between: str = ".") -> str:
    """The first field that is wrong and why: `name: Field required`."""
    problem = error.errors()[0]
    field = between.join(str(part) for part in problem["loc"]) or "the file"
    return f"{field}: {problem['msg'].removeprefix('Value error, ')}"
