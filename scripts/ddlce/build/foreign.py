"""What a build for another platform needs of this machine beside its emulator."""

from __future__ import annotations

import os
from pathlib import Path

#: The machine's own ldd asks the machine's own loader, which refuses a program of another
#: platform. This one starts the program, that is, its loader, under the emulator.
LDD = """\
#!/bin/sh
for program; do
  LD_TRACE_LOADED_OBJECTS=1 "$program" || exit
done
"""


def add_tools(folder: Path) -> None:
    """Put stand-ins for tools that know only this machine's platform first on PATH.

    Args:
        folder: where they are written; lies in the build's staging folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    ldd = folder / "ldd"
    ldd.write_text(LDD)
    ldd.chmod(0o755)
    os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"
