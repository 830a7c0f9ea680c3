"""What a build for another platform needs of this machine beside its emulator."""

from __future__ import annotations

import hashlib
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

#: Where --build and --host differ, a configure script believes that it cannot run what it compiles,
#: and guesses. It can: let it try, as it does where they are not both given.
CONFIGURE = """\
if test "${cross_compiling-}" = yes; then cross_compiling=maybe; fi
"""


def settings_id() -> str:
    """Stands for what every build is told: it differs where another package may come of it.

    `LDD` and `COMPILERS` are for tests, which leave nothing in a package.
    """
    return hashlib.sha256((CMAKE + CONFIGURE).encode()).hexdigest()


def point_builders(folder: Path, triple: str) -> None:
    """Tell every CMake and configure script that is started from here what it builds for.

    A script that wants to be told otherwise sets CONFIG_SITE or CMAKE_TOOLCHAIN_FILE itself.

    Args:
        folder: where the files for it are written; lies in the build's staging folder.
        triple: what stands before the names of this machine's compilers for the platform.
    """
    folder.mkdir(parents=True, exist_ok=True)
    toolchain, site = folder / "toolchain.cmake", folder / "config.site"
    toolchain.write_text(CMAKE.format(machine=triple.partition("-")[0]))
    site.write_text(CONFIGURE)
    os.environ |= {"CMAKE_TOOLCHAIN_FILE": str(toolchain), "CONFIG_SITE": str(site)}


def add_tools(folder: Path, triple: str) -> None:
    """Put first on PATH what the tests would find on a machine of the platform.

    Args:
        folder: where the tools are written; lies in the build's staging folder.
        triple: what stands before the names of this machine's compilers for the platform.
    """
    for name in ("CMAKE_TOOLCHAIN_FILE", "CONFIG_SITE"):  # there, they would be at home
        os.environ.pop(name, None)
    folder.mkdir(parents=True, exist_ok=True)
    ldd = folder / "ldd"
    ldd.write_text(LDD)
    ldd.chmod(0o755)
    for name in COMPILERS:
        if program := shutil.which(f"{triple}-{name}"):
            (folder / name).symlink_to(program)
    os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"
