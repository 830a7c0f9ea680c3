"""The data of the human pages: the index, joined with the files inside each package."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from tarfile import TarError
from typing import Any
from zipfile import BadZipFile

from conda_package_streaming.package_streaming import stream_conda_info, zstd

from ddlce import jsontext
from ddlce.engine.versions import version_key
from ddlce.repodata import read_records

#: The two files of a package's `info/` that the index does not carry.
INFO_FILES = ("info/about.json", "info/run_exports.json")

#: Bytes of one of them.
LONGEST_INFO = 1 << 20

UNREADABLE = (OSError, ValueError, BadZipFile, TarError, zstd.ZstdError)


@dataclass(frozen=True)
class Build:
    """One package file: its record in repodata.json, and where it lies."""

    file: str
    subdir: str
    record: dict[str, Any]
    path: Path

    @property
    def version(self) -> str:
        """The version as the recipe wrote it."""
        return str(self.record["version"])

    @property
    def order(self) -> tuple[Any, int, int]:
        """Sorts by conda's version order, then build number, then time."""
        record = self.record
        return (
            version_key(self.version),
            int(record.get("build_number", 0)),
            int(record.get("timestamp", 0)),
        )

    @property
    def info(self) -> dict[str, dict[str, Any]]:
        """`info/about.json` and `info/run_exports.json` of the package; {} where absent."""
        stat = self.path.stat()
        return read_info(self.path, stat.st_mtime_ns, stat.st_size)


@dataclass
class Package:
    """All builds of one name, newest first, and the names that depend on it."""

    name: str
    builds: list[Build] = field(default_factory=list)
    needed_by: set[str] = field(default_factory=set)

    @property
    def newest(self) -> Build:
        """The build that a solver would prefer."""
        return self.builds[0]

    @property
    def about(self) -> dict[str, Any]:
        """The newest build's `about`."""
        return self.newest.info["info/about.json"]

    @property
    def homepage(self) -> str | None:
        """The newest build's home page, if it is a web address (it becomes a link)."""
        homes = self.about.get("home") or []
        first = homes if isinstance(homes, str) else next(iter(homes), "")
        return first if first.startswith(("https://", "http://")) else None

    @cached_property
    def run_exports(self) -> list[tuple[str, str]]:
        """(kind, spec) of what a build on this package adds to its run dependencies."""
        exports = self.newest.info["info/run_exports.json"]
        return [(kind, spec) for kind, specs in sorted(exports.items()) for spec in specs]


@lru_cache(maxsize=4096)
def read_info(path: Path, _mtime_ns: int, _size: int) -> dict[str, dict[str, Any]]:
    """The `INFO_FILES` of the package at `path`; the other arguments date the cached answer."""
    info: dict[str, dict[str, Any]] = {name: {} for name in INFO_FILES}
    try:
        for archive, member in stream_conda_info(str(path)):
            if member.name in info and (stream := archive.extractfile(member)):
                info[member.name] = jsontext.load(stream.read(LONGEST_INFO + 1), LONGEST_INFO)
    except UNREADABLE:  # one bad file must not take the whole channel's page away
        info["info/about.json"] = {"summary": "This package file cannot be read."}
    return info


def read_catalogue(channel: Path, subdirs: Iterable[str]) -> dict[str, Package]:
    """Every package of the channel's index by name, sorted by name.

    A subdir without an index is empty; a package that the index names but that is no longer
    there (the index is about to be replaced) is left out.

    Raises:
        SourceError: an index is damaged.
    """
    packages: dict[str, Package] = {}
    for subdir in subdirs:
        for file, record in read_records(channel / subdir / "repodata.json").items():
            path = channel / subdir / file
            if path.is_file():
                package = packages.setdefault(record["name"], Package(record["name"]))
                package.builds.append(Build(file, subdir, record, path))
    for package in packages.values():
        package.builds.sort(key=lambda build: build.order, reverse=True)
        for depend in package.newest.record.get("depends", []):
            needed = depend.split()[0]
            if needed in packages:
                packages[needed].needed_by.add(package.name)
    return dict(sorted(packages.items()))
