"""What runs a command in which programs of another platform work."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from ddlce.errors import InputError, MachineError
from ddlce.platforms import PLATFORMS, get_platform
from ddlce.programs import ask, own_python

#: A namespace in which the caller is root, with its own mounts.
NAMESPACE = ("--user", "--map-root-user", "--mount")


def emulated(command: Sequence[str], platform: str, sysroot: Path) -> list[str]:
    """The command line that runs `command` where programs of `platform` can be run.

    Args:
        command: a program of either platform, with its arguments.
        platform: conda's name, e.g. "linux-ppc64le".
        sysroot: has the platform's glibc; from `ensure_sysroot`.

    Raises:
        InputError: no emulator is known for the platform.
        MachineError: qemu or unshare is missing, or namespaces are forbidden here.
    """
    emulator, unshare = find_emulator(platform), _find_unshare()
    caller = f"{os.getuid()}:{os.getgid()}"
    enter = own_python("-m", "ddlce.emulate.enter", platform, emulator, str(sysroot), caller)
    return [unshare, *NAMESPACE, "--", *enter, *command]


def find_emulator(platform: str) -> str:
    """The absolute path of the program that emulates the platform's processor.

    Raises:
        InputError: none is known for the platform.
        MachineError: none is installed.
    """
    names = get_platform(platform).emulators
    if not names:
        known = [row.subdir for row in PLATFORMS.values() if row.emulators]
        raise InputError(
            f"{platform}: no emulator is known for this platform", f"one of: {', '.join(known)}"
        )
    for name in names:
        if found := shutil.which(name):
            return str(Path(found).resolve())
    raise MachineError(
        f"{' or '.join(names)}: not on this machine, and programs of {platform} run on it",
        "as root: apt-get install -y --no-install-recommends qemu-user-static "
        "(other systems call it qemu-user)",
    )


def _find_unshare() -> str:
    unshare = shutil.which("unshare")
    if unshare is None:
        raise MachineError(
            "unshare: not on this machine, and emulated programs run in a namespace made by it",
            "install util-linux",
        )
    probe = ask([unshare, *NAMESPACE, "--", "true"])
    if probe.returncode:
        raise MachineError(
            f"this machine allows no user namespaces: {probe.stderr.strip()}",
            "in a container, allow them (seccomp); on a host, see the sysctls "
            "user.max_user_namespaces and kernel.apparmor_restrict_unprivileged_userns",
        )
    return unshare
