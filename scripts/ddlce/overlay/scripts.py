"""An overlay's own names for its release's Python programs, which run them by the overlay's Python.

A program of the release, as torchrun, names the release's Python in its first line, and that Python
sees no package of the overlay.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

#: The first line, or the two of a script whose path is too long for one (PyPA's distlib).
_DIRECT = re.compile(rb"#! ?(?P<python>[^ \n]+)(?P<options>[^\n]*)\n")
_BY_SHELL = re.compile(
    rb"#!/bin/sh\n(?:#[^\n]*\n)*'''exec' \"?(?P<python>[^\"\n]+?)\"?(?P<options>(?: -[^ \n]+)*)"
    rb' "?\$0"? "?\$@"?\n'
)


def scripts(target: Path, release: Path) -> dict[str, str]:
    """The text of each such program, by its name.

    A program that asks for an isolated Python (`-I`) wants no package of a user, and is left out.

    Args:
        target: the overlay's final place.
        release: the release's prefix.
    """
    python = target / "bin" / "python"
    texts = {}
    for program in sorted((release / "bin").iterdir()):
        options = _options(program, release)
        if options is None or "-I" in options:
            continue
        command = shlex.join([str(python), *options, str(program)])
        texts[program.name] = f'#!/bin/sh\nexec {command} "$@"\n'
    return texts


def _options(program: Path, release: Path) -> list[str] | None:
    """The options that a program gives to its release's Python; None where it has another."""
    if program.is_symlink() or not program.is_file():
        return None
    with program.open("rb") as file:
        head = file.read(4096)
    match = _BY_SHELL.match(head) or _DIRECT.match(head)
    if not match:
        return None
    python = Path(match["python"].decode(errors="replace"))
    if python.parent != release / "bin" or not re.fullmatch(r"python[\d.]*", python.name):
        return None
    return match["options"].decode(errors="replace").split()
