"""The machine's build tools, and settings that builds for another platform are told."""

from __future__ import annotations

import functools
import hashlib
import shutil
from pathlib import Path

from ddlce.files import sha256_file
from ddlce.platforms import BUILD_PLATFORM, get_platform
from ddlce.programs import ask
from ddlce.settings import build_path

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
    """A digest of the settings that every build gets; it changes where they may change a package.

    `LDD` and `COMPILERS` are for tests, which leave nothing in a package.
    """
    return hashlib.sha256((CMAKE + CONFIGURE).encode()).hexdigest()


@functools.cache
def toolchain(subdir: str = BUILD_PLATFORM) -> dict[str, str]:
    """Identity of the machine's build tools: name → first line of --version.

    Args:
        subdir: the platform that they build for. For a foreign one, the machine's compilers, the
            emulator and the settings of builders are listed, too. No tool can be asked for its C
            library's version: it has the sha256 of the files that programs are linked with.

    Raises:
        InputError: the platform is not known.
    """
    tools: tuple[str, ...] = ("cmake", "make")
    if subdir != BUILD_PLATFORM:
        prefix = get_platform(subdir).triple
        tools = (f"{prefix}-gcc", f"{prefix}-g++", f"{prefix}-ld", "cmake", "make")
    versions = {tool: _first_line(tool, "--version") for tool in tools}
    if subdir != BUILD_PLATFORM:
        library = Path(_first_line(tools[0], "-print-file-name=libc.so.6"))
        versions["glibc"] = sha256_file(library) if library.is_file() else "absent"
        # What it compiles, a build also runs: in configure scripts, and to fill databases.
        emulators = [p for n in get_platform(subdir).emulators if (p := shutil.which(n))]
        versions["emulator"] = _first_line(emulators[0], "--version") if emulators else "absent"
        versions["cross settings"] = settings_id()
    return versions


def _first_line(tool: str, argument: str) -> str:
    program = shutil.which(tool, path=build_path())
    if program is None:
        return "absent"
    return ask([program, argument]).stdout.partition("\n")[0]
