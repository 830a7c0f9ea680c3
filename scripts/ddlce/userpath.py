"""Paths as users write them: `~`, `~NAME`, and what is relative to the current folder."""

from __future__ import annotations

import os
from pathlib import Path

from ddlce.errors import InputError, MachineError


def absolute(path: str | Path, argument: str) -> Path:
    """A path with the home in it filled in, from `/`.

    Args:
        argument: where: an option, a variable, or what the path is for.

    Raises:
        InputError: it begins with `~NAME`, and there is no such user.
        MachineError: it begins with `~`, and this user has no home.
    """
    path = Path(path)
    first = path.parts[0] if path.parts else ""
    if first == "~":
        return home().joinpath(*path.parts[1:]).absolute()
    try:
        return path.expanduser().absolute()
    except RuntimeError:
        raise InputError(
            f"{argument}: {path}: there is no user {first[1:]!r}", "write the whole path"
        ) from None


def canonical(path: Path) -> Path:
    """The one path of what is, or will be, at `path`: no `..`, and no links on the way there.

    What an environment's files hold is this one. A link at its very end is left: it is for the
    caller to refuse it.
    """
    if path.name in ("", ".."):
        return Path(os.path.realpath(path))
    return Path(os.path.realpath(path.parent)) / path.name


def home() -> Path:
    """The user's home.

    Raises:
        MachineError: HOME is not set, and the system does not know this user.
    """
    # Without HOME, the system is asked. An empty one is the current folder to pathlib.
    path = os.path.expanduser("~") if os.environ.get("HOME") != "" else ""  # noqa: PTH111
    if not path.startswith("/"):
        raise MachineError(
            f"HOME is {path!r}, which is no folder: user {os.getuid()} has no home",
            "set HOME, or DDLCE_CACHE and DDLCE_ROOT and a whole path for each environment",
        )
    return Path(path)
