"""`recipes/absent.yaml`: what a platform does not get, and why. The one place of the reasons."""

from __future__ import annotations

from pathlib import Path

import yaml
from pydantic import TypeAdapter, ValidationError

from ddlce import yamltext
from ddlce.errors import InputError

ABSENT = "absent.yaml"

_MODEL: TypeAdapter[dict[str, dict[str, str]]] = TypeAdapter(dict[str, dict[str, str]])


def load_absent(path: Path, subdir: str) -> dict[str, str]:
    """Recipe → the reason why it is not built for a platform; empty where there is no table.

    Raises:
        InputError: not YAML, or not platform → recipe → a reason in words.
    """
    if not path.is_file():
        return {}
    try:
        table = _MODEL.validate_python(yamltext.load(path.read_text(encoding="utf-8")) or {})
    except yaml.YAMLError as error:
        raise InputError(f"{path}: not valid YAML: {error}", "mend the line named above") from error
    except ValidationError as error:
        where = ": ".join(str(part) for part in error.errors()[0]["loc"]) or "the file"
        raise InputError(
            f"{path}: {where}: {error.errors()[0]['msg']}",
            "write it as platform, recipe, reason",
        ) from error
    found = table.get(subdir, {})
    for name, reason in found.items():
        if not reason.strip():
            raise InputError(f"{path}: {subdir}: {name}: no reason", "say why it is absent")
    return {name: " ".join(reason.split()) for name, reason in found.items()}
