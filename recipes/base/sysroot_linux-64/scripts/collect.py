"""Makes the archive that this recipe starts from: python3 collect.py OUT.tar.xz DEB...

The packages are Debian 11's libc6, libc6-dev and linux-libc-dev. The archive holds their C headers
in one folder, the crt files and the symbol tables of the libraries. The licences are written beside
it. Same packages, same bytes.
"""

from __future__ import annotations

import io
import lzma
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

from symbols import read_library

MULTIARCH = "x86_64-linux-gnu"

#: The libraries that programs are linked with. Not libnsl and libcrypt: newer systems have none.
LIBRARIES = (
    *("libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "libutil.so.1"),
    *("libresolv.so.2", "ld-linux-x86-64.so.2", "libmvec.so.1", "libanl.so.1"),
    "libBrokenLocale.so.1",
)

#: What a link of dynamic programs and libraries takes from libc6-dev.
STARTS = ("crt1.o", "Scrt1.o", "crti.o", "crtn.o", "gcrt1.o", "libc_nonshared.a")

PACKAGES = ("libc6", "libc6-dev", "linux-libc-dev")


def main(target: Path, *debs: Path) -> None:
    """Write the archive.

    Args:
        target: the archive.
        debs: the three packages, in any order.
    """
    names = sorted(deb.name.partition("_")[0] for deb in debs)
    if names != sorted(PACKAGES):
        given = ", ".join(names) or "no package"
        sys.exit(f"collect.py: {given}: give a .deb of each of {', '.join(PACKAGES)}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for deb in debs:
            unpack(deb, folder)
        target.write_bytes(pack(sorted(members(folder))))
        licences = target.parent / "copyright"
        licences.mkdir(exist_ok=True)
        for package in PACKAGES[1:]:
            text = folder / "usr/share/doc" / package / "copyright"
            (licences / package).write_bytes(text.read_bytes())


def unpack(deb: Path, folder: Path) -> None:
    """Unpack a Debian package: an ar archive; ar comes with every compiler."""
    data = subprocess.run(["ar", "p", deb, "data.tar.xz"], capture_output=True, check=True).stdout
    subprocess.run(["tar", "xJ", "-C", folder], input=data, check=True)


def members(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Name and content of every file of the archive."""
    include = folder / "usr/include"
    for path in (p for p in include.rglob("*") if p.is_file()):
        inside = path.relative_to(include)
        # Flat: the drivers of other systems' compilers know no multiarch folder.
        parts = inside.parts[1:] if inside.parts[0] == MULTIARCH else inside.parts
        if path.suffix != ".x":  # sources of rpcgen's
            yield "/".join(("include", *parts)), path.read_bytes()
    for name in STARTS:
        yield f"lib/{name}", (folder / "usr/lib" / MULTIARCH / name).read_bytes()
    for name in LIBRARIES:
        table = read_library(folder / "lib" / MULTIARCH / name)
        yield f"symbols/{name}", "".join(f"{symbol}\n" for symbol in table).encode()


def pack(files: list[tuple[str, bytes]]) -> bytes:
    """A .tar.xz whose bytes depend on nothing but names and contents."""
    if len(dict(files)) != len(files):
        sys.exit("collect.py: two headers have one name in the flat folder")
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, data in files:
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(data), 0o644
            tar.addfile(info, io.BytesIO(data))
    return lzma.compress(stream.getvalue(), preset=9 | lzma.PRESET_EXTREME)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
