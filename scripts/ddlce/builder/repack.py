"""Repacking: the same inputs give the same bytes, wherever and whenever they were built.

rattler-build stamps files and index.json with the wall clock, and records the folder of the
build as the prefix placeholder. This module rewrites a package with one fixed time, sorted
members and dependencies, one owner, and one canonical placeholder of the same length.
"""

from __future__ import annotations

import hashlib
import heapq
import io
import json
import posixpath
import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import conda_package_streaming.package_streaming as streaming
import zstandard

from ddlce.builder.distributions import distributions, installation_records
from ddlce.errors import WorkError

#: 2026-01-01T00:00:00Z in seconds: the time of every file and package that we make.
EPOCH = 1767225600

#: Level 6 is the knee of the curve on libtorch: a sixth of the
#: default's time for 5% more bytes. Two workers, always: the bytes depend on "more than none".
#: Whoever changes these raises BUILDER_VERSION in ddlce/digest.py: nothing else rebuilds packages.
LEVEL, WORKERS = 6, 2

_ZIP_DATE = (2026, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class _Member:
    info: tarfile.TarInfo
    data: bytes


def canonical_placeholder(length: int) -> str:
    """A prefix of `length` characters that exists on no machine.

    Conda's prefix replacement pads with zero bytes, so the length is what limits how long the
    path of an environment may be; rattler-build makes it 255.
    """
    start = "/opt/ddl-ce/env"
    return (start + "_placehold" * (length // 10))[:length]


def repack(package: Path, target: Path, metadata: dict[str, Any], published: bool = False) -> None:
    """Write `package` to `target` with canonical bytes.

    Its Python distributions get their INSTALLER and RECORD, its index.json their package URLs:
    by these pixi and others know that the package is what PyPI has under that name. A package
    that is none of PyPI's says so by an empty list (https://github.com/conda/ceps/pull/63).

    Args:
        package: a .conda file as rattler-build packed it.
        target: the file to write; its name is the package's file name.
        metadata: JSON that is added as info/ddl-ce.json (digest and what it was made from).
        published: whether its Python distributions are those that PyPI has under their names.

    Raises:
        WorkError: a file of the package still holds the folder it was built in.
    """
    stem = target.name.removesuffix(".conda")
    info = {m.info.name: m for m in _members(package, "info")}
    paths = json.loads(info["info/paths.json"].data)
    link = json.loads(info["info/link.json"].data) if "info/link.json" in info else {}
    points = (link.get("noarch") or {}).get("entry_points") or ()
    records = installation_records(
        paths["paths"], [point.partition("=")[0].strip() for point in points]
    )
    files = _Files(paths, records)
    with target.open("wb") as raw, zipfile.ZipFile(raw, "w", zipfile.ZIP_STORED) as archive:
        _write(archive, "metadata.json", b'{"conda_pkg_format_version": 2}')
        packed = (m for m in sorted_members(package) if m.info.name not in records)
        written = [_file_member(path, data) for path, data in sorted(records.items())]
        pkg = heapq.merge(packed, written, key=lambda member: member.info.name)
        _write_tar(archive, f"pkg-{stem}.tar.zst", (files.rewrite(m) for m in pkg))
        files.follow_links()
        index = json.loads(info["info/index.json"].data)
        index["timestamp"] = EPOCH * 1000
        for key in ("depends", "constrains"):  # the engine's order changes from run to run
            if key in index:
                index[key].sort()
        names = distributions(files.entries) if published else ()
        index["purls"] = [distribution.purl for distribution in names]
        about = json.loads(info["info/about.json"].data)
        about.pop("channels", None)  # the build's own sandbox
        replaced = {
            "info/paths.json": files.paths,
            "info/index.json": index,
            "info/about.json": about,
            "info/ddl-ce.json": metadata,
            # The variant alone: the engine's has its own version and clock.
            "info/hash_input.json": metadata.get("variant", {}),
        }
        kept = [m for name, m in info.items() if name not in (*replaced, *_DROPPED)]
        made = [_json_member(name, data) for name, data in replaced.items()]
        _write_tar(archive, f"info-{stem}.tar.zst", sorted(kept + made, key=lambda m: m.info.name))


#: Written by the engine with its own folders; ddl-ce.json says it better.
_DROPPED = ("info/git",)


class _Files:
    """Rewrites the files of a package and their entries in paths.json.

    Args:
        records: files that take their place among them.
    """

    def __init__(self, paths: dict[str, Any], records: dict[str, bytes]) -> None:
        self.entries = {entry["_path"]: entry for entry in paths["paths"]}
        for path, data in records.items():
            self.entries[path] = {
                "_path": path,
                "path_type": "hardlink",
                "sha256": hashlib.sha256(data).hexdigest(),
                "size_in_bytes": len(data),
            }
        self.paths = {**paths, "paths": [self.entries[path] for path in sorted(self.entries)]}
        self._links: dict[str, str] = {}

    def rewrite(self, member: _Member) -> _Member:
        if member.info.issym():
            folder = posixpath.dirname(member.info.name)
            self._links[member.info.name] = posixpath.normpath(
                posixpath.join(folder, member.info.linkname)
            )
        entry = self.entries.get(member.info.name)
        placeholder = (entry or {}).get("prefix_placeholder")
        if entry is None or not placeholder:
            return member
        canonical = canonical_placeholder(len(placeholder))
        data = member.data.replace(placeholder.encode(), canonical.encode())
        entry["prefix_placeholder"] = canonical
        entry["sha256"] = hashlib.sha256(data).hexdigest()
        entry["size_in_bytes"] = len(data)
        return _Member(member.info, data)

    def follow_links(self) -> None:
        """Give a link the sha256 of the file that it names, when all files were rewritten.

        The engine takes it before it makes RPATHs relative: that of a file with the build's folder.
        """
        for name in self._links.keys() & self.entries.keys():
            target, seen = self._links[name], {name}
            while target in self._links and target not in seen:
                seen.add(target)
                target = self._links[target]
            if target in self.entries and target not in self._links:
                self.entries[name]["sha256"] = self.entries[target]["sha256"]


def sorted_members(package: Path) -> Iterator[_Member]:
    """The package's files by name.

    Sorting needs the names first: the archive is read twice, so that a package of a gigabyte
    is never in memory as a whole.
    """
    names = [m.name for _, m in _stream(package, "pkg")]
    if names == sorted(names):
        yield from _members(package, "pkg")
        return
    held: dict[str, _Member] = {}
    order = iter(sorted(names))
    expected = next(order, None)
    for member in _members(package, "pkg"):
        held[member.info.name] = member
        while expected in held:
            yield held.pop(expected)
            expected = next(order, None)


def _stream(package: Path, component: str) -> Iterator[tuple[tarfile.TarFile, tarfile.TarInfo]]:
    with package.open("rb") as stream:
        yield from streaming.stream_conda_component(package.name, stream, component)


def _members(package: Path, component: str) -> Iterator[_Member]:
    for tar, info in _stream(package, component):
        handle = tar.extractfile(info) if info.isfile() else None
        yield _Member(info, handle.read() if handle else b"")


def _json_member(name: str, data: Any) -> _Member:
    return _file_member(name, (json.dumps(data, indent=2, sort_keys=True) + "\n").encode())


def _file_member(name: str, data: bytes) -> _Member:
    return _Member(tarfile.TarInfo(name), data)


def _write_tar(archive: zipfile.ZipFile, name: str, members: Iterable[_Member]) -> None:
    """One .tar.zst inside the .conda file; zstandard frames carry no time.

    Compressed beside it first: with the size known, zipfile needs no zip64 records below 2 GiB,
    which different releases of Python 3.11 write differently.
    """
    compressor = zstandard.ZstdCompressor(level=LEVEL, threads=WORKERS)
    with tempfile.TemporaryFile(dir=Path(str(archive.filename)).parent) as compressed:
        with compressor.stream_writer(compressed, closefd=False) as stream:
            with tarfile.open(fileobj=stream, mode="w|", format=tarfile.GNU_FORMAT) as tar:
                for member in members:
                    tar.addfile(_canonical(member), io.BytesIO(member.data))
        info = _zip_info(name)
        info.file_size = compressed.tell()
        compressed.seek(0)
        with archive.open(info, "w") as raw:
            shutil.copyfileobj(compressed, raw, 1 << 20)


def _canonical(member: _Member) -> tarfile.TarInfo:
    info = tarfile.TarInfo(member.info.name)
    info.type, info.linkname = member.info.type, member.info.linkname
    info.size = len(member.data) if member.info.isfile() else 0
    info.mtime = EPOCH
    executable = member.info.mode & 0o111
    info.mode = 0o755 if executable or member.info.isdir() else 0o644
    if member.info.issym():
        info.mode = 0o777
    if member.info.islnk():
        raise WorkError(
            f"{member.info.name}: packed as a hard link",
            "make it a copy or a symbolic link in build.sh",
        )
    return info


def _zip_info(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, date_time=_ZIP_DATE)
    info.external_attr = 0o644 << 16
    return info


def _write(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    archive.writestr(_zip_info(name), data)
