"""What a build for another platform needs of this machine beside its emulator."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from conda_package_streaming.extract import extract

from ddlce.toolchain import CMAKE, CONFIGURE

#: The machine's own ldd asks the machine's own loader, which refuses a program of another
#: platform. This one starts the program, that is, its loader, under the emulator.
LDD = """\
#!/bin/sh
for program; do
  LD_TRACE_LOADED_OBJECTS=1 "$program" || exit
done
"""

#: What a user's machine of the platform calls `gcc` and so on.
COMPILERS = ("gcc", "g++", "ar", "ld", "nm", "ranlib", "readelf", "strip")


def point_builders(folder: Path, triple: str) -> None:
    """Tell every CMake and configure script that is started from here what it builds for.

    A script that wants to be told otherwise sets CONFIG_SITE or CMAKE_TOOLCHAIN_FILE itself.

    Args:
        folder: where the files for it are written; lies in the build's staging folder.
        triple: what stands before the names of the compilers for the platform.
    """
    folder.mkdir(parents=True, exist_ok=True)
    toolchain, site = folder / "toolchain.cmake", folder / "config.site"
    toolchain.write_text(CMAKE.format(machine=triple.partition("-")[0]))
    site.write_text(CONFIGURE)
    os.environ |= {"CMAKE_TOOLCHAIN_FILE": str(toolchain), "CONFIG_SITE": str(site)}


def add_tools(folder: Path, triple: str, helpers: Iterable[Path] = ()) -> None:
    """Put the tools first on PATH that tests would find on a machine of the platform.

    Args:
        folder: where the tools are written; lies in the build's staging folder.
        triple: what stands before the names of the compilers for the platform.
        helpers: packages for this machine, in which no file names a prefix.
    """
    for name in ("CMAKE_TOOLCHAIN_FILE", "CONFIG_SITE"):  # there, they would be at home
        os.environ.pop(name, None)
    folder.mkdir(parents=True, exist_ok=True)
    ldd = folder / "ldd"
    ldd.write_text(LDD)
    ldd.chmod(0o755)
    programs = folder / "helpers" / "bin"
    for package in helpers:
        extract(str(package), str(programs.parent))
        shutil.rmtree(programs.parent / "info")  # one package's file is another's folder there
    for name in COMPILERS:
        if (program := programs / f"{triple}-{name}").exists():
            (folder / name).symlink_to(program)
    os.environ["PATH"] = os.pathsep.join([str(folder), str(programs), os.environ["PATH"]])
