"""What builds take of the machine, and settings that builds for another platform are told."""

from __future__ import annotations

import functools
import hashlib
import shutil

from ddlce.platforms import BUILD_PLATFORM, get_platform
from ddlce.programs import ask

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
    """What a build takes of the machine: name → first line of --version, or a digest.

    Compilers and build tools are packages. For a foreign platform, it is the emulator and what
    builders are told.

    Args:
        subdir: the platform that is built for.

    Raises:
        InputError: the platform is not known.
    """
    if subdir == BUILD_PLATFORM:
        return {}
    # What it compiles, a build also runs: in configure scripts, and to fill databases.
    emulators = [p for n in get_platform(subdir).emulators if (p := shutil.which(n))]
    emulator = ask([emulators[0], "--version"]).stdout.partition("\n")[0] if emulators else "absent"
    return {"emulator": emulator, "cross settings": settings_id()}
