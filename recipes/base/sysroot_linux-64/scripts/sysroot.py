"""Makes the sysroot of one glibc release: python3 sysroot.py FLOOR ARCHIVE SYSROOT LIBRARY...

The archive is `collect.py`'s. Each LIBRARY is a real one, of which a stub without limit is made.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

from headers import limit
from stubs import limited, make_stub
from symbols import numbers, read_library, read_table

#: The oldest floor that the headers were compared for.
OLDEST = "2.28"

#: The names that -lNAME finds, beside the scripts below.
LINKS = ("libpthread", "libdl", "librt", "libutil", "libresolv", "libanl", "libBrokenLocale")

#: Linker scripts: what -lc, -lm and -lgcc_s mean. A linker looks for their paths in the sysroot.
SCRIPTS = {
    "libc.so": "/lib/libc.so.6 /usr/lib/libc_nonshared.a AS_NEEDED ( /lib64/ld-linux-x86-64.so.2 )",
    "libm.so": "/lib/libm.so.6 AS_NEEDED ( /lib/libmvec.so.1 )",
    "libgcc_s.so": "/lib/libgcc_s.so.1 -lgcc",
}


def main(floor: str, archive: Path, root: Path, *libraries: Path) -> None:
    """Write the sysroot.

    Args:
        floor: the glibc release, "2.28".
        archive: `glibc-RELEASE.tar.xz`.
        root: the new folder.
        libraries: libstdc++, libgcc_s and libgomp.
    """
    release = archive.name.removeprefix("glibc-").removesuffix(".tar.xz")
    floor = headers_of(floor, release)
    root.mkdir(parents=True)
    shutil.unpack_archive(archive, root)
    usr, tables = root / "usr", root / "symbols"
    usr.mkdir()
    for name in ("include", "lib"):
        (root / name).rename(usr / name)
    (usr / "lib64").symlink_to("lib")
    for name in ("lib", "lib64"):
        (root / name).symlink_to("usr/lib")
    symbols = {table.name: read_table(table) for table in sorted(tables.iterdir())}
    if floor != release:
        limit(usr / "include", [s for table in symbols.values() for s in table], floor)
    symbols = {soname: limited(table, floor) for soname, table in symbols.items()}
    symbols |= {soname_of(library): read_library(library) for library in libraries}
    for soname, table in symbols.items():
        make_stub(table, soname, usr / "lib", os.environ.get("CC", "gcc"))
    for name in LINKS:
        (usr / "lib" / f"{name}.so").symlink_to(next((usr / "lib").glob(f"{name}.so.*")).name)
    for soname in symbols:
        if soname.startswith(("libstdc++", "libgomp")):
            (usr / "lib" / soname.rpartition(".")[0]).symlink_to(soname)
    for name, words in SCRIPTS.items():
        (usr / "lib" / name).write_text(f"OUTPUT_FORMAT(elf64-x86-64) GROUP ( {words} )\n")
    shutil.rmtree(tables)


def headers_of(floor: str, release: str) -> str:
    """The release that headers and stubs are of: the floor, or the archive's where that is older.

    Raises:
        SystemExit: the sysroot of this floor cannot be made.
    """
    where = "c_stdlib_version in recipes/conda_build_config.yaml"
    if not re.fullmatch(r"2\.\d+", floor):
        sys.exit(f"sysroot_linux-64: {floor}: no release of glibc; mend {where}")
    if numbers(floor) < numbers(OLDEST):
        sys.exit(
            f"sysroot_linux-64: glibc {floor} is older than {OLDEST}, down to which the headers "
            f"are known to be right; raise {where}"
        )
    return min(floor, release, key=numbers)


def soname_of(library: Path) -> str:
    """`libstdc++.so.6` of `libstdc++.so.6.0.30`."""
    return re.sub(r"(\.so\.\d+).*", r"\1", library.name)


if __name__ == "__main__":
    main(sys.argv[1], *map(Path, sys.argv[2:]))
