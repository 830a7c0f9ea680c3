"""What is asked of a channel as a whole: its index, and packages beside each other."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import zstandard

from ddlce.audit.facts import Info, read_info
from ddlce.audit.model import Finding
from ddlce.repodata import read_records

#: The fields of an index record that the package itself decides.
OWN_FIELDS = (
    *("name", "version", "build", "build_number", "depends", "constrains", "license"),
    *("subdir", "noarch", "timestamp", "track_features", "purls", "python_site_packages_path"),
)


def clobbered(packages: Iterable[Info]) -> list[Finding]:
    """Paths that two packages of one environment would both install."""
    owners: dict[str, str] = {}
    findings = []
    for info in packages:
        for path in sorted(info.paths):
            other = owners.setdefault(path, info.name)
            if other != info.name:
                findings.append(Finding("clobber", path, f"is in {other} and in {info.name}"))
    return findings


def unknown_dependencies(packages: Iterable[Info]) -> list[Finding]:
    """Dependencies that the channel has no package of; virtual packages are the machine's."""
    packages = list(packages)
    names = {info.name for info in packages}
    return [
        Finding("depends", info.path.name, f"depends on {name}, which the channel does not have")
        for info in packages
        for name in info.depends
        if name not in names and not name.startswith("__")
    ]


def indexed(folder: Path) -> list[Path]:
    """The packages of one subdir, sorted: those that its index names, all where it has none.

    Files that no index names are kept for locks (see `ddlce.channel`): no solve chooses them.
    """
    index = folder / "repodata.json"
    if not index.is_file():
        return sorted(folder.glob("*.conda"))
    return sorted(folder / name for name in read_records(index))


def audit_index(folder: Path) -> list[Finding]:
    """Whether the packages that the index of one subdir names are there, as it says.

    Args:
        folder: a subdir of a channel, with repodata.json and repodata.json.zst.
    """
    text = (folder / "repodata.json").read_bytes()
    findings = list(_zst(folder, text))
    records = read_records(folder / "repodata.json")
    present = {path.name for path in folder.iterdir() if path.suffix == ".conda"}
    for name in sorted(records.keys() - present):
        findings.append(
            Finding("index", f"{folder.name}/{name}", "is in the index, but not in the folder")
        )
    for name in sorted(records.keys() & present):
        findings += _record(folder / name, records[name])
    return findings


def _zst(folder: Path, text: bytes) -> Iterator[Finding]:
    path = folder / "repodata.json.zst"
    if not path.is_file():
        yield Finding("index", f"{folder.name}/{path.name}", "is missing")
        return
    with zstandard.ZstdDecompressor().stream_reader(io.BytesIO(path.read_bytes())) as stream:
        if json.loads(stream.read()) != json.loads(text):
            yield Finding("index", f"{folder.name}/{path.name}", "differs from repodata.json")


def _record(package: Path, record: dict[str, Any]) -> Iterator[Finding]:
    where = f"{package.parent.name}/{package.name}"
    data = package.read_bytes()
    actual = {
        "size": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "md5": hashlib.md5(data, usedforsecurity=False).hexdigest(),
    }
    for key, value in actual.items():
        if record.get(key) != value:
            yield Finding("index", where, f"the index says {key} {record.get(key)}, not {value}")
    index = read_info(package).index
    for key in OWN_FIELDS:
        if (record.get(key) or None) != (index.get(key) or None):
            yield Finding(
                "index", where, f"the index says {key} {record.get(key)}, not {index.get(key)}"
            )
