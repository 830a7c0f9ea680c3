"""Inside the new namespace: register the emulator with the kernel, then become the command.

Run as `python -m ddlce.emulate.enter PLATFORM EMULATOR SYSROOT UID:GID COMMAND...`.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import NoReturn

from ddlce.elf import MAGIC, machine_number
from ddlce.emulate.mount import mount
from ddlce.emulate.processor import show_processor
from ddlce.errors import DdlceError, InputError, MachineError, print_error
from ddlce.platforms import get_platform

BINFMT = Path("/proc/sys/fs/binfmt_misc")

#: Programs and shared objects (ET_EXEC is 2, ET_DYN is 3: the mask lets the last bit be).
ET_EXEC, ET_MASK = b"\x02\x00", b"\xfe\xff"


def registration(platform: str, emulator: str) -> bytes:
    """The line that makes the kernel hand a platform's programs to its emulator.

    Flags: P keeps the program's own argv[0]; F opens the emulator now, so that it is found
    whatever the command does to its view of the file system.
    """
    ident = MAGIC + bytes([2, 1, 1])  # 64 bits, little-endian, ELF version 1
    machine = machine_number(get_platform(platform).elf)
    magic = ident + bytes(9) + ET_EXEC + machine.to_bytes(2, "little")
    # The rest of e_ident (which ABI, padding) differs from file to file and says nothing here.
    mask = b"\xff" * len(ident) + bytes(9) + ET_MASK + b"\xff\xff"
    fields = [b"ddlce-" + platform.encode(), b"M", b"0", _escaped(magic), _escaped(mask)]
    return b":" + b":".join([*fields, emulator.encode(), b"PF"])


def _escaped(data: bytes) -> bytes:
    return b"".join(b"\\x%02x" % byte for byte in data)


def register(platform: str, emulator: str) -> None:
    """Mount this namespace's own binfmt_misc and register the emulator in it.

    Raises:
        MachineError: the kernel refuses.
    """
    hint = "user namespaces have a binfmt_misc of their own since Linux 6.7; here it is Linux "
    hint += os.uname().release
    problem = "cannot mount a private binfmt_misc"
    mount("-t", "binfmt_misc", "binfmt_misc", str(BINFMT), problem=problem, hint=hint)
    try:
        (BINFMT / "register").write_bytes(registration(platform, emulator))
    except OSError as error:
        raise MachineError(f"cannot register {emulator} with {BINFMT}: {error}", hint) from error


def glibc_of(sysroot: Path) -> str:
    """The version of the glibc in a sysroot; "" where it does not say.

    It stands in the text that libc.so.6 prints when it is run.
    """
    for library in sysroot.glob("usr/lib/*/libc.so.6"):
        if match := re.search(rb"release version (\d+\.\d+)", library.read_bytes()):
            return match[1].decode()
    return ""


def become(command: list[str], caller: str) -> NoReturn:
    """Run the command in our place, as the user who called, who is root here only by mapping.

    Raises:
        InputError: there is no such command.
    """
    if caller != "0:0":
        user, _, group = caller.partition(":")
        # A second namespace, below: the kernel also looks for emulators in those above.
        command = ["unshare", "--user", f"--map-user={user}", f"--map-group={group}", *command]
    try:
        os.execvp(command[0], command)
    except OSError as error:
        raise InputError(
            f"{command[0]}: {error.strerror}", "name a program that is on PATH, or its path"
        ) from error


def main() -> NoReturn:
    """Register, then become the command; errors as the CLI prints them."""
    platform, emulator, sysroot, caller, *command = sys.argv[1:]
    os.environ["QEMU_LD_PREFIX"] = sysroot
    if glibc := glibc_of(Path(sysroot)):
        # What conda's clients call __glibc: that of the platform, not this machine's.
        os.environ["CONDA_OVERRIDE_GLIBC"] = glibc
    try:
        register(platform, emulator)
        show_processor(get_platform(platform).machine)
        become(command, caller)
    except DdlceError as error:
        print_error(error)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
