"""Finds the module that gives a job this release."""

import json
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from ddl.launch.errors import LaunchError

_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")


def module_of(environ: Mapping[str, str], prefix: Path = Path(sys.prefix)) -> str | None:
    """The name of this release's module; None where there is none, as in a user's copy.

    The loaded module is the one whose modulefile names our prefix: sites rename modules. Without
    one it is `ENVIRONMENT/RELEASE` of the release that the prefix says it is.

    Args:
        environ: has LOADEDMODULES and _LMFILES_, which both module systems set.
        prefix: of the environment that ddlrun is in.
    """
    names = environ.get("LOADEDMODULES", "").split(":")
    files = environ.get("_LMFILES_", "").split(":")
    for name, file in zip(names, files, strict=False):
        try:
            text = Path(file).read_text(encoding="utf-8")
        except (OSError, ValueError):
            continue  # the module that we look for has a file that can be read
        if re.search(rf"{re.escape(str(prefix))}(?![\w.-])", text):
            return name
    return _release_name(prefix)


def _release_name(prefix: Path) -> str | None:
    path = prefix / "conda-meta" / "ddl-ce.origin"
    try:
        origin = json.loads(path.read_text(encoding="utf-8"))
        if origin["kind"] != "release":
            return None
        words = [origin["env"], origin["release"]]
        if not all(_WORD.fullmatch(word) for word in words):
            raise ValueError
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError):
        raise LaunchError(
            f"{path} does not say which release this is", "Give the module: -module NAME."
        ) from None
    return "/".join(words)


def programs_folder(prefix: Path = Path(sys.prefix)) -> str:
    """The folder of the environment's programs; LaunchError: PATH cannot hold it."""
    folder = str(prefix / "bin")
    if os.pathsep in folder:
        raise LaunchError(f"PATH cannot hold {folder}, since it has a colon")
    return folder
