"""Makes the packages of a cross compiler of Debian's: python3 install.py gcc|gxx PLATFORM PREFIX.

Run in the folder with the `.deb` files. The compiler in BUILD_PREFIX compiles the start program, by
which each program runs on the package runtime_linux-64.
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path.cwd() / "start"))

from debian import copy, library, unpack_all
from gcc_names import BINUTILS, DRIVERS, FOR_GCC, INNER, MAJOR, OTHER_NAMES, PREPROCESSOR
from starter import HOST, Starter, by_compiler

#: Of GCC's own folder and of the C library's: what is linked and included. No static library of
#: what a package or the glibc of the prefix has.
PARTS = (
    *("*crt*.o", "include", "libgcc.a", "libgcc_eh.a", "libgcc_s.so", "libgcov.a", "libgomp.spec"),
    "libssp_nonshared.a",
)
LIBC = (
    *("*crt*.o", "ld64.so.*", "ld-linux-*.so.*", "lib*_nonshared.a"),
    *("lib{}.a", "lib{}.so", "lib{}.so.[0-9]*"),
)
LIBC_NAMES = ("c", "m", "pthread", "dl", "rt", "util", "resolv", "gcc_s", "stdc++")


@dataclass(frozen=True)
class Target:
    """One platform to compile for.

    Attributes:
        triple: in Debian's names of programs and folders.
        libraries: what binutils load that is of this target.
    """

    triple: str
    libraries: tuple[str, ...]


TARGETS = {
    "linux-ppc64le": Target(
        "powerpc64le-linux-gnu",
        (
            *("libbfd-2.40-ppc64el.so", "libopcodes-2.40-ppc64el.so"),
            *("libctf-ppc64el.so.0", "libctf-nobfd-ppc64el.so.0"),
        ),
    ),
}


def main(package: str, platform: str, prefix: Path) -> None:
    """Install one of the packages into the prefix."""
    work = Path.cwd()
    root = work / "debian"
    unpack_all(work, root, work / "copyright")
    target = TARGETS[platform]
    triple, folder = target.triple, f"{target.triple}/gcc"
    gcc, bin_, parts = prefix / folder, root / "usr" / "bin", f"lib/gcc-cross/{triple}/{MAJOR}"
    compiler = Path(os.environ["BUILD_PREFIX"], "bin", f"{HOST}-gcc")
    start = Starter(by_compiler(compiler), folder, triple, work)
    programs = {name: bin_ / f"{triple}-{name}-{MAJOR}" for name in DRIVERS[package]}
    if package == "gcc":
        programs |= {name: bin_ / f"{triple}-{name}-{MAJOR}" for name in PREPROCESSOR}
        programs |= {name: bin_ / f"{triple}-{name}" for name in BINUTILS if name != "ld"}
        programs["ld"] = bin_ / f"{triple}-ld.bfd"
    for name, program in programs.items():
        copy(program, gcc / "programs" / name)
        start.install(prefix, f"bin/{triple}-{name}")
        start.install(prefix, f"{folder}/bin/{name}")
    (gcc / "bin" / OTHER_NAMES[package]).symlink_to(DRIVERS[package][0])
    for name in INNER[package]:
        copy(root / "usr" / parts / name, gcc / "programs" / name)
        start.install(prefix, f"{folder}/{parts}/{name}")
    if package == "gxx":
        copy(root / "usr" / triple / "include" / "c++", gcc / triple / "include" / "c++")
        copy_matching(root / "usr" / triple / "lib", gcc / triple / "lib", ["libstdc++.so.*"])
        (gcc / triple / "lib" / "libstdc++.so").symlink_to("libstdc++.so.6")
        return
    for name in FOR_GCC:
        start.install(prefix, f"{folder}/{triple}/bin/{name}")
    for soname in target.libraries:
        copy(library(root, soname), gcc / "programs" / soname)
    copy_matching(root / "usr" / parts, gcc / parts, PARTS)
    copy(root / "usr" / parts / "liblto_plugin.so", gcc / "programs" / "liblto_plugin.so")
    (gcc / parts / "liblto_plugin.so").symlink_to("../../../../programs/liblto_plugin.so")
    install_libc(root / "usr" / triple, gcc / triple)


def install_libc(debian: Path, ours: Path) -> None:
    """The C library's headers, and what is linked with it."""
    for path in sorted((debian / "include").iterdir()):
        if path.name != "c++":
            copy(path, ours / "include" / path.name)
    patterns = [p.format(name) for p in LIBC for name in (LIBC_NAMES if "{}" in p else ("",))]
    static = {"libc.a", "libm.a", "libresolv.a", "libstdc++.a"}  # the others are empty
    copy_matching(debian / "lib", ours / "lib", patterns, static)
    (ours / "lib64").symlink_to("lib")
    for path in (ours / "lib").glob("lib*.so"):
        if path.is_file() and path.read_bytes()[:4] != b"\x7fELF":
            # A linker script: what it names is beside it.
            path.write_text(re.sub(r"/\S*/(?=lib|ld)", "", path.read_text()))


def copy_matching(
    source: Path, target: Path, patterns: list[str] | tuple[str, ...], but: set[str] | None = None
) -> None:
    """Copy what matches; links stay links."""
    for path in sorted({found for pattern in patterns for found in source.glob(pattern)}):
        if path.name in (but or ()) or (target / path.name).is_symlink():
            continue
        if path.is_symlink():
            target.mkdir(parents=True, exist_ok=True)
            (target / path.name).symlink_to(path.readlink())
        else:
            copy(path, target / path.name)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
