"""What a package holds, read once: its metadata, its files, and what their ELF headers say."""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from tarfile import TarError, TarInfo
from typing import Any
from zipfile import BadZipFile

from conda_package_streaming.package_streaming import (
    stream_conda_component,
    stream_conda_info,
    zstd,
)

from ddlce import jsontext
from ddlce.elf import MAGIC, Elf, read_elf
from ddlce.errors import WorkError

UNREADABLE = (OSError, ValueError, BadZipFile, TarError, zstd.ZstdError)

#: Parts of the paths that only rattler-build's own folders have: the padded prefix, and the
#: folder above the work folder and the prefix of build tools. (Not `/build_env/`: pip has one.)
# Joined here, so that this file, packaged, does not find itself.
BUILD_MARKS = (b"_".join([b"placehold"] * 2), b"/" + b"rattler-build_")


@dataclass(frozen=True)
class File:
    """One file of the package's payload.

    Attributes:
        path: relative to the prefix.
        target: where a symbolic link leads, as written; None for a file.
        size, sha256: of the bytes; of a link, its target's length and "".
        mode: permission bits.
        text: no NUL byte in it.
        marks: forbidden texts that are in it.
        placeholder: whether the prefix that paths.json registers for it is in it.
        elf: for an ELF file.
        time: when it was changed, in seconds since 1970; 0 for a link.
        source_time: of bytecode, the time of the source that it is for; None for what is none, or
            compares its source otherwise (PEP 552).
    """

    path: str
    target: str | None
    size: int
    sha256: str
    mode: int
    text: bool = False
    marks: tuple[str, ...] = ()
    placeholder: bool = False
    elf: Elf | None = None
    time: int = 0
    source_time: int | None = None

    @property
    def folder(self) -> PurePosixPath:
        """The folder of the file, relative to the prefix."""
        return PurePosixPath(self.path).parent


@dataclass(frozen=True)
class Facts:
    """All that the rules look at.

    Attributes:
        path: the package.
        info: contents of the JSON files in info/, by name without suffix.
        licenses: (name, size) of the files in info/licenses.
        paths: the entries of info/paths.json.
        files: the payload, by path.
        floor: the newest glibc that the package may need, "2.28"; "" for any.
    """

    path: Path
    info: dict[str, Any]
    licenses: tuple[tuple[str, int], ...]
    paths: tuple[dict[str, Any], ...]
    files: dict[str, File] = field(repr=False)
    floor: str = ""

    @property
    def index(self) -> dict[str, Any]:
        """info/index.json."""
        found = self.info.get("index")
        return found if isinstance(found, dict) else {}

    @property
    def name(self) -> str:
        """The package's name."""
        return str(self.index.get("name", ""))

    @property
    def depends(self) -> tuple[str, ...]:
        """The names of what it depends on."""
        return tuple(str(spec).split()[0] for spec in self.index.get("depends", ()))


@dataclass(frozen=True)
class Info:
    """The part of a package that is read for every dependency, and to compare with the index.

    Attributes:
        path: the package.
        index: info/index.json.
        paths: what it installs, relative to the prefix.
    """

    path: Path
    index: dict[str, Any] = field(repr=False)
    paths: frozenset[str] = field(repr=False)

    @property
    def name(self) -> str:
        """The package's name."""
        return str(self.index["name"])

    @property
    def depends(self) -> tuple[str, ...]:
        """The names of what it depends on."""
        return tuple(str(spec).split()[0] for spec in self.index.get("depends", ()))


def read_facts(package: Path, forbidden: Sequence[str] = ()) -> Facts:
    """Read a whole package.

    Args:
        package: a .conda file.
        forbidden: texts (paths) to look for in every file.

    Raises:
        WorkError: it is no readable .conda file.
    """
    try:
        info, licenses = _read_info(package)
        entries = (info.get("paths") or {}).get("paths") or ()
        registered = {
            entry["_path"]: entry["prefix_placeholder"]
            for entry in entries
            if entry.get("prefix_placeholder")
        }
        files = {}
        with package.open("rb") as stream:
            for archive, member in stream_conda_component(package.name, stream, "pkg"):
                data = archive.extractfile(member) if member.isfile() else None
                prefix = registered.get(member.name)
                files[member.name] = (
                    _file(member, data.read(), prefix, forbidden)
                    if data
                    else File(member.name, member.linkname, len(member.linkname), "", member.mode)
                )
    except UNREADABLE as error:
        raise WorkError(f"{package}: cannot be read: {error}", "build the package again") from error
    return Facts(package, info, tuple(licenses), tuple(entries), files)


def read_info(package: Path, python: str = "3") -> Info:
    """Read only what a dependent must know.

    Args:
        package: a .conda file.
        python: the minor version of the environment that it is asked about, "3.11".

    Raises:
        WorkError: it is no readable .conda file.
    """
    info = read_metadata(package)
    paths = {entry["_path"] for entry in info["paths"]["paths"]}
    noarch = (info.get("link") or {}).get("noarch") or {}
    if noarch.get("type") == "python":
        paths = {installed_path(path, python) for path in paths}
        # each entry point is `command = module:function`
        points = noarch.get("entry_points") or ()
        paths |= {f"bin/{point.partition('=')[0].strip()}" for point in points}
    return Info(package, info["index"], frozenset(paths))


def read_metadata(package: Path) -> dict[str, Any]:
    """The contents of the JSON files in info/ of a .conda file, by name without suffix.

    Raises:
        WorkError: it is no readable .conda file.
    """
    try:
        return _read_info(package)[0]
    except UNREADABLE as error:
        raise WorkError(f"{package}: cannot be read: {error}", "build the package again") from error


def read_exports(package: Path) -> frozenset[str]:
    """The symbols that the libraries and programs of a package define for others.

    Raises:
        WorkError: it is no readable .conda file.
    """
    exported: set[str] = set()
    try:
        with package.open("rb") as stream:
            for archive, member in stream_conda_component(package.name, stream, "pkg"):
                data = archive.extractfile(member) if member.isfile() else None
                if data is not None and (head := data.read(4)) == MAGIC:
                    elf = read_elf(head + data.read())
                    exported |= elf.exports if elf else set()
    except UNREADABLE as error:
        raise WorkError(f"{package}: cannot be read: {error}", "build the package again") from error
    return frozenset(exported)


def installed_path(path: str, python: str) -> str:
    """Where a file of a noarch python package goes, in an environment with that python."""
    if path.startswith("site-packages/"):
        return f"lib/python{python}/{path}"
    return re.sub(r"^python-scripts/", "bin/", path)


def _read_info(package: Path) -> tuple[dict[str, Any], list[tuple[str, int]]]:
    info: dict[str, Any] = {}
    licenses = []
    for archive, member in stream_conda_info(str(package)):
        path = PurePosixPath(member.name)
        if member.name.startswith("info/licenses/") and member.isfile():
            licenses.append((str(path.relative_to("info/licenses")), member.size))
        elif str(path.parent) == "info" and path.suffix == ".json":
            stream = archive.extractfile(member)
            info[path.stem] = jsontext.load(stream.read()) if stream else None
    return info, licenses


def _file(member: TarInfo, data: bytes, prefix: str | None, forbidden: Sequence[str]) -> File:
    marks = [text for text in forbidden if text.encode() in data]
    rest = data.replace(prefix.encode(), b"") if prefix else data
    marks += [mark.decode() for mark in BUILD_MARKS if mark in rest]
    return File(
        path=member.name,
        target=None,
        size=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
        mode=member.mode,
        text=b"\0" not in data,
        marks=tuple(marks),
        placeholder=prefix is not None and prefix.encode() in data,
        elf=read_elf(data) if data.startswith(MAGIC) else None,
        time=int(member.mtime),
        source_time=_source_time(data) if member.name.endswith(".pyc") else None,
    )


def _source_time(bytecode: bytes) -> int | None:
    """The second and third word of bytecode: flags, then its source's time where they are 0."""
    flags, time = struct.unpack_from("<II", bytecode, 4) if len(bytecode) >= 12 else (1, 0)
    return None if flags else time
