"""Reading Debian's binary packages: an ar archive of a control and a data tarball."""

from __future__ import annotations

import contextlib
import io
import os
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

    Not by tarfile's filter for data: Python 3.11.2 has none, and it refuses the absolute links of
    Debian's packages.

    Raises:
        SourceError: not a Debian package, or one that would write outside its root, over what is
            there, or a device.
    """
    with deb_member(path, "data") as tar:
        for member in tar:
            try:
                _extract(tar, member, folder)
            except ValueError as error:
                raise SourceError(f"{path}: {error}", "it may be hostile: do not use it") from error


def _extract(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    target = _below(folder, member.name)
    there = os.path.lexists(target)
    if member.isdir() and (not there or _is_folder(target)):
        target.mkdir(parents=True, exist_ok=True)
        return
    if there:
        raise ValueError(f"{target.relative_to(folder)} is there already")
    target.parent.mkdir(parents=True, exist_ok=True)
    if member.issym():
        target.symlink_to(member.linkname)
    elif member.islnk():
        goal = _below(folder, member.linkname)
        if goal.is_symlink() or not goal.is_file():
            name = f"{member.name} is another name of {member.linkname}"
            raise ValueError(f"{name}, which is no file")
        target.hardlink_to(goal)
    elif stream := tar.extractfile(member) if member.isfile() else None:
        with target.open("wb") as out:
            shutil.copyfileobj(stream, out)
        target.chmod(0o755 if member.mode & 0o111 else 0o644)
    else:
        raise ValueError(f"{member.name} is a device or a pipe")


def _below(folder: Path, name: str) -> Path:
    """The path of a member below `folder`, with no link on the way."""
    inner = PurePosixPath(name)
    if inner.is_absolute() or ".." in inner.parts:
        raise ValueError(f"has a file outside its root: {name}")
    path = folder
    for part in inner.parts[:-1]:
        path /= part
        if os.path.lexists(path) and not _is_folder(path):
            raise ValueError(f"{name}: {path.relative_to(folder)} is not a folder")
    return folder / inner


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()
