"""Where a platform's programs can be run: right here, or emulated."""

from __future__ import annotations

from collections.abc import Callable

from ddlce.platforms import BUILD_PLATFORM
from ddlce.settings import Settings

#: Makes of a command line the one that runs it where the programs of some platform work.
Runner = Callable[[list[str]], list[str]]


def runner_of(settings: Settings, platform: str) -> Runner:
    """What runs a platform's programs on this machine; for another platform, ready to do so.

    Raises:
        InputError: no emulator is known for the platform.
        MachineError: an emulated program's C library cannot be had.
    """
    if platform == BUILD_PLATFORM:
        return list
    from ddlce.emulate import emulated, ensure_sysroot

    sysroot = ensure_sysroot(settings, platform)
    return lambda command: emulated(command, platform, sysroot)
