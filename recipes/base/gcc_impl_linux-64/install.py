"""Makes the packages of the compiler of Debian's packages: python3 install.py PACKAGE PREFIX.

PACKAGE is `runtime`, `gcc` or `gxx`. Run in the folder with the `.deb` files. It needs Python's
standard library and no compiler: the start program that stands in each program's place is compiled
by the very compiler it is for.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).with_name("start")))

from debian import copy, library, unpack_all
from gcc_names import BINUTILS, DRIVERS, FOR_GCC, INNER, MAJOR, OTHER_NAMES, PREPROCESSOR
from starter import COMPILE, HOST, LINK, SOURCE, Starter

TRIPLE = "x86_64-linux-gnu"

#: Where the compiler is in the prefix, and what its programs and all tools run on.
GCC = f"{HOST}/gcc"
RUNTIME = f"{HOST}/runtime"
PARTS = f"lib/gcc/{TRIPLE}/{MAJOR}"

#: What compilers load, of each target, and the tools of the room build-tools.
LIBRARIES = (
    *("ld-linux-x86-64.so.2", "libc.so.6", "libm.so.6", "libdl.so.2", "libz.so.1"),
    *("libzstd.so.1", "libgmp.so.10", "libmpfr.so.6", "libmpc.so.3", "libisl.so.23"),
    *("libjansson.so.4", "libsframe.so.0"),
)
#: What binutils loads, which is of one target.
OF_BINUTILS = (
    *("libbfd-2.40-system.so", "libopcodes-2.40-system.so", "libctf.so.0", "libctf-nobfd.so.0"),
)

#: What GCC links and includes. Not libgomp.a: its TLS model keeps it out of shared libraries. Not
#: libgcc_eh.a (-static-libgcc): Debian's needs glibc 2.35. Not the sanitizers, which need libraries
#: that no package has.
TARGET_FILES = (
    *("crt*.o", "include", "libgcc.a", "libgcov.a", "libgomp.spec"),
    *("libssp_nonshared.a",),
)

#: For users' programs: the environment's libraries are found without a variable. `DDLCE_PREFIX`
#: is the start program's, which leaves this file out where packages are built.
RUNPATH = "*link:\n+ %{!static:%{!static-pie:-rpath %:getenv(DDLCE_PREFIX /lib)}}\n\n"


def main(package: str, prefix: Path) -> None:
    """Install one of the packages into the prefix."""
    work = Path.cwd()
    root = work / "debian"
    unpack_all(work, root, work / "copyright")
    if package == "runtime":
        for name in LIBRARIES:
            copy(library(root, name), prefix / RUNTIME / name)
        return
    gcc = prefix / GCC
    bin_ = root / "usr" / "bin"
    start = Starter(by_parts(root), GCC, HOST, work, ["-DUSERS"])
    for name in (*DRIVERS[package], *(PREPROCESSOR if package == "gcc" else ())):
        copy(bin_ / f"{TRIPLE}-{name}-{MAJOR}", gcc / "programs" / name)
        start.install(prefix, f"bin/{HOST}-{name}")
        start.install(prefix, f"{GCC}/bin/{name}")
    (gcc / "bin" / OTHER_NAMES[package]).symlink_to(DRIVERS[package][0])
    for name in INNER[package]:
        copy(root / "usr" / PARTS / name, gcc / "programs" / name)
        start.install(prefix, f"{GCC}/{PARTS}/{name}")
    if package == "gcc":
        install_rest(root, prefix, start)


def install_rest(root: Path, prefix: Path, start: Starter) -> None:
    """Binutils, and what GCC links and includes."""
    gcc = prefix / GCC
    for name in BINUTILS:
        copy(root / "usr" / "bin" / f"{TRIPLE}-{name}", gcc / "programs" / name)
        start.install(prefix, f"bin/{HOST}-{name}")
        start.install(prefix, f"{GCC}/bin/{name}")
    for name in FOR_GCC:
        start.install(prefix, f"{GCC}/{TRIPLE}/bin/{name}")
    for name in OF_BINUTILS:
        copy(library(root, name), gcc / "programs" / name)
    for pattern in TARGET_FILES:
        for path in sorted((root / "usr" / PARTS).glob(pattern)):
            copy(path, gcc / PARTS / path.name)
    # ld and ar load it, so it is of the programs' world.
    copy(root / "usr" / PARTS / "liblto_plugin.so", gcc / "programs" / "liblto_plugin.so")
    (gcc / PARTS / "liblto_plugin.so").symlink_to("../../../../programs/liblto_plugin.so")
    (gcc / "runpath.specs").write_text(RUNPATH)


def by_parts(root: Path) -> Callable[[Sequence[str], Path], None]:
    """Compiles the start program by the parts of Debian's compiler, on Debian's C library."""

    def start(program: Path, *arguments: str | Path) -> None:
        folders = (root / folder / TRIPLE for folder in ("lib", "usr/lib"))
        options = ("--library-path", ":".join(map(str, folders)))
        loader = library(root, "ld-linux-x86-64.so.2")
        subprocess.run([loader, *options, program, *arguments], check=True)

    def compile_(definitions: Sequence[str], program: Path) -> None:
        assembly, object_ = program.with_suffix(".s"), program.with_suffix(".o")
        options = ("-quiet", *COMPILE, "-imultiarch", TRIPLE, *definitions)
        start(root / "usr" / PARTS / "cc1", *options, SOURCE, "-o", assembly)
        start(root / "usr" / "bin" / f"{TRIPLE}-as", assembly, "-o", object_)
        start(root / "usr" / "bin" / f"{TRIPLE}-ld.bfd", *LINK, object_, "-o", program)

    return compile_


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
