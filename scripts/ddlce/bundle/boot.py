"""The first Python of a bundle: an interpreter and what of its library reads packages.

It is in the bundle a second time, unpacked, so it is small: a twentieth of the packages at most.
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterator
from pathlib import Path

from conda_package_streaming.package_streaming import stream_conda_component

from ddlce.bundle.description import BOOT, READER, Description
from ddlce.model.envlock import LockedPackage

#: A file's time, 1980: tar complains of a file of 1970.
TIME = 315_532_800

#: Of Python's library: modules, and the packages that they import. Not these modules: no program
#: of ours imports them, and they are long.
LIBRARY = r"lib/{python}/((collections|encodings|importlib|json|re|urllib|zipfile)/)?(\w+)\.py"
LEFT_OUT = frozenset(("pydoc", "turtle", "doctest", "pdb"))

#: Of its compiled modules, those that reading archives needs.
COMPILED = r"lib/{python}/lib-dynload/(_bisect|_random|_struct|binascii|grp|zlib)\.[^/]*\.so"

#: The interpreter with its libraries; zlib is one of another package's.
INTERPRETER = r"bin/{python}|lib/lib{python}\.so\.1\.0|lib/libz\.so\.1[.\d]*"

#: The reader of packages, without its tests' and types' files.
READS = r"lib/{python}/site-packages/(backports/zstd/(zipfile/)?\w+[^/]*\.(?:py|so))"


def boot_files(
    said: Description, packages: list[tuple[LockedPackage, Path]]
) -> Iterator[tuple[tarfile.TarInfo, bytes]]:
    """The members of the first part that are the Python's.

    Args:
        packages: of the lock, with their files.
    """
    plain = re.compile("|".join((LIBRARY, COMPILED, INTERPRETER)).format(python=said.python))
    reads = re.compile(READS.format(python=said.python))
    for package, path in packages:
        if package.name not in ("python", "libzlib", READER):
            continue
        with path.open("rb") as stream:
            for tar, member in stream_conda_component(path.name, stream, "pkg"):
                name = member.name.removeprefix("./")
                if found := reads.fullmatch(name):
                    target = f"{BOOT}/site/{found[1]}"
                elif plain.fullmatch(name) and Path(name).stem not in LEFT_OUT:
                    target = f"{BOOT}/{name}"
                else:
                    continue
                if member.issym():
                    yield symlink(target, member.linkname), b""
                elif content := tar.extractfile(member):
                    data = content.read()
                    yield regular(target, len(data), 0o755 if member.mode & 0o100 else 0o644), data
    yield symlink(f"{BOOT}/bin/python", said.python), b""
    script = Path(__file__).with_name("unpack.py").read_bytes()
    yield regular(f"{BOOT}/unpack.py", len(script)), script


def regular(name: str, size: int, mode: int = 0o644) -> tarfile.TarInfo:
    """A file's entry, the same for the same file wherever and whenever it is written."""
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.mtime = size, mode, TIME
    return info


def symlink(name: str, target: str) -> tarfile.TarInfo:
    """A symbolic link's entry."""
    info = regular(name, 0, 0o777)
    info.type, info.linkname = tarfile.SYMTYPE, target
    return info
