"""`recipes/absent.yaml`: what a platform does not get, and why. The one place of the reasons."""

from __future__ import annotations

from pathlib import Path

import yaml
from pydantic import TypeAdapter, ValidationError

from ddlce import yamltext
from ddlce.errors import InputError

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
    """Platform → what is absent there → the reason; those of every platform under "".

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
    try:
        return _MODEL.validate_python(yamltext.load(path.read_text(encoding="utf-8")) or {})
    except yaml.YAMLError as error:
        raise InputError(f"{path}: not valid YAML: {error}", "mend the line named above") from error
    except ValidationError as error:
        where = ": ".join(str(part) for part in error.errors()[0]["loc"]) or "the file"
        raise InputError(
            f"{path}: {where}: {error.errors()[0]['msg']}",
            "write it as platform, recipe, reason",
        ) from error


def _reasons(path: Path, where: str, found: dict[str, str]) -> dict[str, str]:
    for name, reason in found.items():
        if not reason.strip():
            raise InputError(f"{path}: {where}: {name}: no reason", "say why it is absent")
    return {name: " ".join(reason.split()) for name, reason in found.items()}
