"""Programs that ddlrun starts for itself: never one that lies in the current folder."""

import os
import shutil
import sys


def own_python(*words: str) -> list[str]:
    """The command that runs code of ours on this interpreter.

    -P imports nothing from the current folder, which may be anybody's. -I, where ddlrun itself was
    started so, imports nothing from PYTHONPATH either.
    """
    return [sys.executable, "-I" if sys.flags.isolated else "-P", *words]


def find_program(name: str) -> str | None:
    """The path of a program on PATH; parts of it that depend on the current folder do not count."""
    parts = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return shutil.which(name, path=os.pathsep.join(part for part in parts if part[:1] == "/"))
