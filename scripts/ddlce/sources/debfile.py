"""Reading Debian's binary packages: an ar archive of a control and a data tarball."""

from __future__ import annotations

import contextlib
import io
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import zstandard

from ddlce.errors import SourceError

MAGIC = b"!<arch>\n"


@contextlib.contextmanager
def deb_member(path: Path, part: str) -> Iterator[tarfile.TarFile]:
    """One tarball of a package, open for reading.

    Args:
        path: a .deb file.
        part: "data" or "control".

    Raises:
        SourceError: not a Debian package.
    """
    try:
        name, data = next(
            (name, data) for name, data in _ar(path) if name.startswith(f"{part}.tar")
        )
        if name.endswith(".zst"):
            data = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data)).read()
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            yield tar
    except (StopIteration, tarfile.TarError, zstandard.ZstdError, ValueError) as error:
        raise SourceError(
            f"{path}: not a Debian package: {error or f'no {part} in it'}", "fetch it again"
        ) from error


def _ar(path: Path) -> Iterator[tuple[str, bytes]]:
    """Name and content of each member of an ar archive."""
    with path.open("rb") as stream:
        if stream.read(len(MAGIC)) != MAGIC:
            raise ValueError("no ar archive")
        while len(header := stream.read(60)) == 60:
            size = int(header[48:58])
            yield header[:16].decode().strip().rstrip("/"), stream.read(size)
            stream.read(size % 2)


def unpack_deb(path: Path, folder: Path) -> None:
    """Write the package's files below `folder`; nothing is written outside it.

    Raises:
        SourceError: not a Debian package, or it has a file outside its root.
    """
    with deb_member(path, "data") as tar:
        for member in tar:
            inner = PurePosixPath(member.name)
            if inner.is_absolute() or ".." in inner.parts:
                raise SourceError(f"{path}: has a file outside its root: {member.name}")
            target = folder / inner
            if member.isdir():
                target.mkdir(parents=True, exist_ok=True)
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            if member.issym():
                target.symlink_to(member.linkname)
            elif member.islnk():
                target.hardlink_to(folder / member.linkname)
            elif stream := tar.extractfile(member):
                with target.open("wb") as out:
                    shutil.copyfileobj(stream, out)
                target.chmod(member.mode & 0o755)
