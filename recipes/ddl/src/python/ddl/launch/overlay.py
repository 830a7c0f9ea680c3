"""An overlay of a staged job: its packages on top of the local copy of its release.

An overlay is a venv, and its Python is a link to that of the shared release. The local copy's
Python takes the overlay's packages as those of the user instead (PYTHONUSERBASE): they come before
the release's own, and `.pth` files in them count.
"""

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

_PYTHON = re.compile(r"(?P<overlay>/.+)/bin/(?P<program>python[\d.]*)")


def overlay_of(command: Sequence[str], environ: Mapping[str, str], prefix: Path) -> Path | None:
    """The overlay whose Python a job uses; None: it has none that is made on `prefix`.

    Args:
        command: the program and its arguments.
        environ: has VIRTUAL_ENV where an overlay is active.
        prefix: the release that this ddlrun is of.
    """
    program = shutil.which(command[0], path=environ.get("PATH", os.defpath)) if command else None
    match = _PYTHON.fullmatch(str(Path(program).absolute())) if program else None
    # A Python has its own packages, wherever another overlay is active.
    folder = match["overlay"] if match else environ.get("VIRTUAL_ENV")
    return Path(folder) if folder and _is_made_on(Path(folder), prefix) else None


def local_overlay(
    overlay: Path, words: Sequence[str], environ: Mapping[str, str], local: str
) -> tuple[list[str], dict[str, str]]:
    """The words and variables with which the local copy's Python has the overlay's packages.

    Args:
        words: ddlrun's own; the overlay's Python among them becomes the local copy's.
        environ: the variables, in which the release's paths are the local copy's already.
        local: the prefix of the local copy.
    """
    moved = []
    for word in words:
        match = _PYTHON.fullmatch(word)
        is_own = match and Path(match["overlay"]) == overlay
        moved.append(f"{local}/bin/{match['program']}" if match and is_own else word)
    kept = {name: value for name, value in environ.items() if name != "PYTHONNOUSERSITE"}
    path = f"{local}/bin{os.pathsep}{environ.get('PATH', os.defpath)}"
    return moved, {**kept, "PATH": path, "PYTHONUSERBASE": str(overlay)}


def _is_made_on(folder: Path, prefix: Path) -> bool:
    """Whether it is a venv of the release's Python that sees the release's packages."""
    try:
        text = (folder / "pyvenv.cfg").read_text(encoding="utf-8")
    except (OSError, ValueError):
        return False
    said = dict(re.findall(r"^([\w-]+) *= *(.*?) *$", text, re.MULTILINE))
    home = str(said.get("home", "/nowhere"))
    sees_it = str(said.get("include-system-site-packages")).lower() == "true"
    return sees_it and os.path.realpath(home) == os.path.realpath(prefix / "bin")
