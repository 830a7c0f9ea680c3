"""The platforms: one row for each, with every name that the ecosystems have for it.

A new platform begins with a row here (docs/howto/platform.md). What differs by recipe stands with
the recipes: versions of Python and others in conda_build_config.yaml, absences in absent.yaml.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass

from ddlce.errors import InputError


@dataclass(frozen=True)
class Platform:
    """One platform that packages are made for.

    Attributes:
        subdir: conda's name, "linux-64".
        machine: the kernel's name of the processor (`uname -m`), also that of wheel tags and of
            environment markers.
        debian: Debian's architecture.
        triple: what stands before the names of Debian's compilers for it.
        elf: `e_machine` of its ELF files, by the name in the ELF specification.
        page_size: in bytes, the largest that its kernels have; libraries are aligned for it.
        loader: the file name of glibc's loader.
        machine_libraries: of the machine's glibc, what whatever is compiled may need beside that
            which recipes name. Elsewhere, the package with the sysroot has them.
        own_toolchain: whether recipes of its own make its compilers, `toolchain_SUBDIR` and so on.
            In the shared recipe, a further platform changes the digests of all others' packages.
        emulators: programs that emulate its processor; the first that is found is taken.
        old_wheel_tags: platform tags of wheels from before manylinux2014.
    """

    subdir: str
    machine: str
    debian: str
    triple: str
    elf: str
    page_size: int
    loader: str
    machine_libraries: tuple[str, ...] = ()
    own_toolchain: bool = False
    emulators: tuple[str, ...] = ()
    old_wheel_tags: tuple[str, ...] = ()


#: Where packages are built, for itself and for the others.
BUILD_PLATFORM = "linux-64"

PLATFORMS = {
    row.subdir: row
    for row in (
        Platform(
            subdir=BUILD_PLATFORM,
            machine="x86_64",
            debian="amd64",
            triple="x86_64-linux-gnu",
            elf="EM_X86_64",
            page_size=4096,
            loader="ld-linux-x86-64.so.2",
            old_wheel_tags=("manylinux1", "manylinux2010"),
        ),
        Platform(
            subdir="linux-ppc64le",
            machine="ppc64le",
            debian="ppc64el",
            triple="powerpc64le-linux-gnu",
            elf="EM_PPC64",
            page_size=65536,
            loader="ld64.so.2",
            emulators=("qemu-ppc64le-static", "qemu-ppc64le"),
        ),
        Platform(
            subdir="linux-aarch64",
            machine="aarch64",
            debian="arm64",
            triple="aarch64-linux-gnu",
            elf="EM_AARCH64",
            page_size=65536,
            loader="ld-linux-aarch64.so.1",
            machine_libraries=(
                "ld-linux-aarch64.so.1",  # which has the stack protector's value
                *("libdl.so.2", "libpthread.so.0", "librt.so.1", "libutil.so.1"),
            ),
            own_toolchain=True,
            emulators=("qemu-aarch64-static", "qemu-aarch64"),
        ),
    )
}


def get_platform(subdir: str) -> Platform:
    """The row of a platform.

    Raises:
        InputError: there is none; names those that there are.
    """
    if subdir not in PLATFORMS:
        raise InputError(f"{subdir}: not a known platform", f"one of: {', '.join(PLATFORMS)}")
    return PLATFORMS[subdir]


def this_platform() -> str:
    """The conda subdir of this machine, known or not."""
    machine = platform.machine()
    known = (row.subdir for row in PLATFORMS.values() if row.machine == machine)
    return next(known, f"linux-{machine}")
