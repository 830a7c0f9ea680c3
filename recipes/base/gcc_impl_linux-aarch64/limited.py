"""Makes the cross compiler's packages for linux-aarch64: python3 limited.py gcc|gxx FLOOR PREFIX.

As the room gcc_impl_cross makes others, whose script is beside this one. But the C library that it
compiles for is limited to the release FLOOR, as that of sysroot_linux-64 is.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path.cwd()))
sys.path.insert(0, str(Path.cwd() / "sysroot"))

import install
from headers import limit
from stubs import limited, make_stub
from symbols import Symbol, read_library

PLATFORM, TRIPLE = "linux-aarch64", "aarch64-linux-gnu"

install.TARGETS[PLATFORM] = install.Target(
    TRIPLE,
    (
        *("libbfd-2.40-arm64.so", "libopcodes-2.40-arm64.so"),
        *("libctf-arm64.so.0", "libctf-nobfd-arm64.so.0"),
    ),
)

#: The libraries of the C library that programs are linked with.
GLIBC = (
    *("libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "libutil.so.1"),
    *("libresolv.so.2", "ld-linux-aarch64.so.1"),
)

#: What Debian's C++ headers say of Debian's glibc, and the release since which it is so.
CONFIGURED = {
    "_GLIBCXX_HAVE_ARC4RANDOM": 36,
    "_GLIBCXX_USE_PTHREAD_COND_CLOCKWAIT": 30,
    "_GLIBCXX_USE_PTHREAD_MUTEX_CLOCKLOCK": 30,
    "_GLIBCXX_USE_PTHREAD_RWLOCK_CLOCKLOCK": 30,
    "_GLIBCXX_USE_UCHAR_C8RTOMB_MBRTOC8_CXX20": 36,
    "_GLIBCXX_USE_UCHAR_C8RTOMB_MBRTOC8_FCHAR8_T": 36,
}


def main(package: str, floor: str, prefix: Path) -> None:
    """Install one of the packages into the prefix."""
    install.main(package, PLATFORM, prefix)
    debian = Path.cwd() / "debian"
    ours = prefix / TRIPLE / "gcc" / TRIPLE
    if package == "gcc":
        compiler = prefix
        # Of the library that the package libgcc has.
        stubs = {"libgcc_s.so.1": read_library(install.library(debian, "libgcc_s.so.1", TRIPLE))}
        stubs |= limit_libc(debian / "usr" / TRIPLE / "lib", ours, floor)
    else:
        compiler = Path(os.environ["BUILD_PREFIX"])
        soname = "libstdc++.so.6"
        stubs = {soname: read_library(debian / "usr" / TRIPLE / "lib" / soname)}
        header = ours / "include" / "c++" / install.MAJOR / TRIPLE / "bits" / "c++config.h"
        header.write_text(configured(header.read_text(), floor))
    for path in [path for soname in stubs for path in (ours / "lib").glob(f"{soname}*")]:
        path.unlink()
    tools = str(compiler / "bin" / f"{TRIPLE}-")
    for soname, symbols in stubs.items():
        make_stub(symbols, soname, ours / "lib", f"{tools}gcc")
        # The linker has noted the object's name, which is another one each time.
        subprocess.run([f"{tools}strip", "--strip-all", ours / "lib" / soname], check=True)
    if package == "gcc":
        write_specs(prefix)


def limit_libc(debian: Path, ours: Path, floor: str) -> dict[str, list[Symbol]]:
    """Limit the headers; the symbols of each library of the C library, limited too."""
    symbols = {name: read_library(debian / name) for name in GLIBC}
    limit(ours / "include", [each for table in symbols.values() for each in table], floor)
    for name in GLIBC:
        stem = name.partition(".so")[0]
        for path in (ours / "lib").glob(f"{stem}.so"):
            if path.is_symlink():
                path.unlink()
                path.symlink_to(name)
    return {name: limited(table, floor) for name, table in symbols.items()}


def write_specs(prefix: Path) -> None:
    """Let a program be linked without a look at what its libraries need.

    The linker would look for that in folders of the machine alone. The audit has it.
    """
    compiler = prefix / "bin" / f"{TRIPLE}-gcc"
    said = subprocess.run([compiler, "-dumpspecs"], capture_output=True, text=True, check=True)
    link = r"(?m)^(\*link:\n.*)$"
    text, count = re.subn(link, r"\1 --allow-shlib-undefined", said.stdout)
    if count != 1:
        sys.exit(f"gcc_impl_{PLATFORM}: -dumpspecs says *link: {count} times, not once")
    parts = prefix / TRIPLE / "gcc" / "lib" / "gcc-cross" / TRIPLE / install.MAJOR
    (parts / "specs").write_text(text)


def configured(text: str, floor: str) -> str:
    """`c++config.h` without what the floor does not have.

    Raises:
        SystemExit: it does not say one of them; the table above is for another GCC.
    """
    for name, since in CONFIGURED.items():
        if since > int(floor.partition(".")[2]):
            text, count = re.subn(rf"(?m)^#define {name} 1$", f"/* no {name} */", text)
            if count != 1:
                sys.exit(f"gcc_impl_{PLATFORM}: c++config.h says {name} {count} times, not once")
    return text


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
