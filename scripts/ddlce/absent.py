"""`recipes/absent.yaml`: what a platform does not get, and why. The one place of the reasons."""

from __future__ import annotations

from pathlib import Path

from pydantic import TypeAdapter

from ddlce.errors import InputError
from ddlce.model.document import first_problem, load_model

ABSENT = "absent.yaml"

#: The key of what is absent on every platform; no recipe of it is in the tree.
EVERYWHERE = "everywhere"

_MODEL: TypeAdapter[dict[str, dict[str, str]]] = TypeAdapter(dict[str, dict[str, str]])


def load_absent(path: Path, subdir: str) -> dict[str, str]:
    """Recipe → the reason why it is not built for a platform; empty where there is no table.

    Raises:
        InputError: not YAML, or not platform → recipe → a reason in words.
    """
    return _reasons(path, subdir, _load(path).get(subdir, {}))


def load_all_absent(path: Path) -> dict[str, dict[str, str]]:
    """Platform → what is absent there → the reason. The key "" stands for every platform.

    Raises:
        InputError: as `load_absent`.
    """
    return {
        "" if where == EVERYWHERE else where: _reasons(path, where, found)
        for where, found in _load(path).items()
    }


def _load(path: Path) -> dict[str, dict[str, str]]:
    if not path.is_file():
        return {}
    return load_model(
        path,
        _MODEL.validate_python,
        lambda _, error: InputError(
            f"{path}: {first_problem(error, ': ')}", "write it as platform, recipe, reason"
        ),
    )


def _reasons(path: Path, where: str, found: dict[str, str]) -> dict[str, str]:
    for name, reason in found.items():
        if not reason.strip():
            raise InputError(f"{path}: {where}: {name}: no reason", "say why it is absent")
    return {name: " ".join(reason.split()) for name, reason in found.items()}
