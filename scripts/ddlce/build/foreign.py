"""What a build for another platform needs of this machine beside its emulator."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

#: The machine's own ldd asks the machine's own loader, which refuses a program of another
#: platform. This one starts the program, that is, its loader, under the emulator.
LDD = """\
#!/bin/sh
for program; do
  LD_TRACE_LOADED_OBJECTS=1 "$program" || exit
done
"""

#: What a user's machine of the platform calls `gcc` and so on.
COMPILERS = ("gcc", "g++", "ar", "ld", "nm", "ranlib", "strip")

#: CMake takes the machine that it runs on for the target unless it is told (and since 3.21 a
#: variable tells it). What it runs of the target, the kernel hands to the emulator.
CMAKE = """\
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR {machine})
set(CMAKE_CROSSCOMPILING_EMULATOR /usr/bin/env)
"""


def point_cmake(folder: Path, triple: str) -> None:
    """Tell every CMake that is started from here what it builds for.

    Args:
        folder: where the toolchain file is written; lies in the build's staging folder.
        triple: what stands before the names of this machine's compilers for the platform.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "toolchain.cmake"
    path.write_text(CMAKE.format(machine=triple.partition("-")[0]))
    os.environ["CMAKE_TOOLCHAIN_FILE"] = str(path)


def add_tools(folder: Path, triple: str) -> None:
    """Put first on PATH what the tests would find on a machine of the platform.

    Args:
        folder: where the tools are written; lies in the build's staging folder.
        triple: what stands before the names of this machine's compilers for the platform.
    """
    os.environ.pop("CMAKE_TOOLCHAIN_FILE", None)  # there, CMake would be at home
    folder.mkdir(parents=True, exist_ok=True)
    ldd = folder / "ldd"
    ldd.write_text(LDD)
    ldd.chmod(0o755)
    for name in COMPILERS:
        if program := shutil.which(f"{triple}-{name}"):
            (folder / name).symlink_to(program)
    os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"
