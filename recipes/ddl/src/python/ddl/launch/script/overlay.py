"""Finds the overlay, or another venv, that a job's script activates."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from ddl.launch.errors import LaunchError

#: Where `ddlce env overlay NAME` puts overlays, unless one of conda's variables names a folder.
OVERLAYS = ".local/share/ddl-ce-envs"
VARIABLES = ("CONDA_ENVS_DIRS", "CONDA_ENVS_PATH")


def activation_of(named: str | None, environ: Mapping[str, str]) -> str | None:
    """The path of the script that activates the job's overlay; None: it has none.

    Args:
        named: by `-overlay`: its name, its path, or `none`. None: the one that is active now.
        environ: has VIRTUAL_ENV where one is active.

    Raises:
        LaunchError: it is not there, or no script can hold its path.
    """
    if named == "none":
        return None
    chosen = named or environ.get("VIRTUAL_ENV")
    if not chosen:
        return None
    said = f"-overlay {named}" if named else f"VIRTUAL_ENV={chosen}"
    script = (_folder(chosen, environ).absolute() / "bin" / "activate").as_posix()
    if re.search(r"[\x00-\x1f\x7f\ud800-\udfff]", script):
        raise LaunchError(f"{said!r} has a character that no script can hold")
    if not os.access(script, os.R_OK):
        make = "ddlce env list shows the overlays." if named else "Leave it out: -overlay none."
        raise LaunchError(f"{said}: there is no {script}", make)
    return script


def _folder(chosen: str, environ: Mapping[str, str]) -> Path:
    if "/" in chosen:
        return Path(chosen)
    listed = [part for name in VARIABLES for part in environ.get(name, "").split(os.pathsep)]
    first = next(filter(None, listed), f"~/{OVERLAYS}")
    home = environ.get("HOME") or "/"
    return Path(re.sub(r"^~(?=/|$)", lambda _: home, first)) / chosen
