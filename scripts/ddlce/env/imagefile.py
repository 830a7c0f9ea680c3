"""Writes the file of an image: a tar archive through zstd, hashed on its way to the disk."""

from __future__ import annotations

import hashlib
import io
import json
import os
import stat
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

import zstandard

from ddlce.env.freeze import EXTERNAL
from ddlce.env.relink import PackagePlan
from ddlce.errors import SourceError
from ddlce.files import rename_synced
from ddlce.trees import PARTIAL as PARTIAL

if TYPE_CHECKING:
    from ddlce.engine.worker import OnProgress

#: zstd's own default: higher ones take far longer, and save little of a network's time.
LEVEL = 3
#: Digits of its sha256 in an image's name, which `ddlrun -stage` looks for.
NAME_DIGITS = 16
#: A file's time where nothing depends on it: 1980, since tar complains of 1970.
TIME = 315_532_800
BLOCK = 4096


@dataclass(frozen=True)
class ImageContent:
    """What goes into an image.

    Attributes:
        source: the release.
        plans: of its packages, made for the image's prefix.
    """

    source: Path
    plans: list[PackagePlan]


@dataclass(frozen=True)
class WrittenImage:
    """An image on the disk.

    Attributes:
        path: the file, with the begin of its sha256 in its name.
        sha256, size: of the file.
        unpacked: bytes on a disk with blocks of 4 KiB.
        files: files, links and folders.
    """

    path: Path
    sha256: str
    size: int
    unpacked: int
    files: int


@dataclass(frozen=True)
class Member:
    """A file of the image: its bytes, or the file that has them, or a link's text."""

    name: str
    data: bytes | None = None
    file: str = ""
    link: str = ""
    mode: int = 0o444
    time: int = TIME


class Hashed(io.RawIOBase):
    """Passes bytes on to a file, and hashes them."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.stream = stream
        self.digest = hashlib.sha256()
        self.size = 0

    def writable(self) -> bool:
        """As a stream says it."""
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        """Write all of `data`."""
        self.digest.update(data)
        self.stream.write(data)
        self.size += len(data)
        return len(data)


def write_image(
    content: ImageContent, folder: Path, name: str, progress: OnProgress | None = None
) -> WrittenImage:
    """Write an image under a hidden name, then rename it.

    Args:
        name: the begin of its own name; see `WrittenImage.path`.

    Raises:
        SourceError: a file of the release is gone.
        OSError: of writing.
    """
    partial = folder / f".{name}{PARTIAL}{os.getpid()}"
    try:
        with partial.open("xb") as stream:
            hashed = Hashed(stream)
            # Threads: the bytes are the same for any number of them, but not for none.
            squeeze = zstandard.ZstdCompressor(
                level=LEVEL, threads=max(1, os.cpu_count() or 1), write_checksum=True
            )
            with squeeze.stream_writer(cast(IO[bytes], hashed), closefd=False) as packed:
                members = [*package_members(content.plans), *other_members(content.source)]
                unpacked, files = write_tar(packed, members, progress)
            stream.flush()
            os.fchmod(stream.fileno(), 0o644)
            os.fsync(stream.fileno())
        sha256 = hashed.digest.hexdigest()
        path = folder / f"{name}-{sha256[:NAME_DIGITS]}.tar.zst"
        rename_synced(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    return WrittenImage(path, sha256, hashed.size, unpacked, files)


def write_tar(
    packed: IO[bytes], members: Iterable[Member], progress: OnProgress | None = None
) -> tuple[int, int]:
    """Write all members, sorted, and the folders that they are in.

    Returns:
        The bytes that they take on a disk, and how many they are.

    Raises:
        SourceError: a file is gone.
    """
    members = sorted(members, key=lambda member: member.name)
    folders = _folders(member.name for member in members)
    unpacked = BLOCK * len(folders)
    with tarfile.open(fileobj=packed, mode="w|", format=tarfile.GNU_FORMAT) as tar:
        for folder in folders:
            tar.addfile(_info(folder, tarfile.DIRTYPE, 0o755))
        for number, member in enumerate(members, 1):
            if progress and number % 1000 == 0:
                progress(number, len(members), member.name.rpartition("/")[2])
            unpacked += _add(tar, member)
    return unpacked, len(folders) + len(members)


def package_members(plans: Iterable[PackagePlan]) -> Iterator[Member]:
    """Every file of these packages, in no order."""
    for plan in plans:
        for file, name, mtime_ns in plan.links:
            time = TIME if mtime_ns is None else mtime_ns // 10**9
            yield Member(name, file=file, time=time)
        for text, name in plan.symlinks:
            yield Member(name, link=text)
        for data, mode, name in plan.own:
            yield Member(name, data, mode=0o555 if mode & stat.S_IXUSR else 0o444)
        record = f"conda-meta/{plan.record.path.name}"
        if plan.changed:
            yield Member(record, (json.dumps(plan.record.data) + "\n").encode())
        else:
            yield Member(record, file=str(plan.record.path))


def other_members(source: Path) -> Iterator[Member]:
    """What a release has beside packages: what says what it is, and the marks that freeze it."""
    others = [p for p in (source / "conda-meta").iterdir() if p.suffix != ".json"]
    others += [source / ".condarc", *source.glob(f"lib/python3*/{EXTERNAL}")]
    for path in others:
        if path.is_file():
            yield Member(str(path.relative_to(source)), file=str(path))


def _folders(names: Iterator[str]) -> list[str]:
    """Every folder that these files are in, each before what is inside it."""
    folders: set[str] = set()
    for name in names:
        folder = name.rpartition("/")[0]
        while folder and folder not in folders:
            folders.add(folder)
            folder = folder.rpartition("/")[0]
    return sorted(folders)


def _add(tar: tarfile.TarFile, member: Member) -> int:
    """Write one member; the bytes that it takes on a disk."""
    if member.link:
        info = _info(member.name, tarfile.SYMTYPE, 0o777)
        info.linkname = member.link
        tar.addfile(info)
        return BLOCK
    info = _info(member.name, tarfile.REGTYPE, member.mode)
    info.mtime = member.time
    if member.data is not None:
        info.size = len(member.data)
        tar.addfile(info, io.BytesIO(member.data))
    else:
        _add_file(tar, info, member.file)
    return -(-info.size // BLOCK) * BLOCK + BLOCK // 4  # and its inode


def _add_file(tar: tarfile.TarFile, info: tarfile.TarInfo, file: str) -> None:
    try:
        stream = open(file, "rb")  # noqa: PTH123, SIM115 (closed below)
    except OSError as error:
        raise SourceError(
            f"{file} cannot be read: {error.strerror}", "find out what is wrong: ddlce env verify"
        ) from error
    with stream:
        status = os.fstat(stream.fileno())
        info.size = status.st_size
        info.mode = 0o555 if status.st_mode & stat.S_IXUSR else 0o444
        tar.addfile(info, stream)


def _info(name: str, kind: bytes, mode: int) -> tarfile.TarInfo:
    """A member without an owner: the same bytes, whoever makes the image."""
    info = tarfile.TarInfo(name)
    info.type, info.mode, info.mtime = kind, mode, TIME
    return info
