"""The conda-meta records of a prefix, as plain data.

rattler writes them. It does not know of bytecode that is compiled after installing, nor of a cache
that only existed for one clone. These are added here in conda's own form. So conda, mamba and
rattler remove such files with the package.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ddlce import jsontext
from ddlce.errors import InputError, WorkError
from ddlce.files import write_atomic
from ddlce.safepath import is_inside

#: One file of a package in paths_data.
FileEntry = dict[str, Any]


class Record:
    """One package's record.

    Attributes:
        path: the JSON file.
        data: its content.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.data: dict[str, Any] = jsontext.load(path.read_bytes())
            self.entries: list[FileEntry] = self.data["paths_data"]["paths"]
            if not {"name", "version"} <= self.data.keys():
                raise ValueError("no name or no version")
            outside = [e["_path"] for e in self.entries if not is_inside(e["_path"])]
            if outside:
                raise ValueError(f"{outside[0]!r} lies outside the environment")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"{path}: not a package record ({error})", "verify it with: ddlce env verify"
            ) from error

    @property
    def stem(self) -> str:
        """`name-version-build`."""
        return self.path.stem

    def add(self, entries: Iterable[FileEntry]) -> None:
        """Add files to the package."""
        for entry in entries:
            self.entries.append(entry)
            self.data["files"].append(entry["_path"])

    def with_entries(self, entries: list[FileEntry]) -> Record:
        """A record that differs in its files; this one stays as it is."""
        twin = copy.copy(self)
        paths = {**self.data["paths_data"], "paths": entries}
        twin.data = {**self.data, "paths_data": paths, "files": [e["_path"] for e in entries]}
        twin.entries = entries
        return twin

    def save(self) -> None:
        """Write the record back, readable by everybody."""
        # Without indent: json's fast encoder; a large package has 20 000 entries.
        write_atomic(self.path, json.dumps(self.data) + "\n")


def read_records(prefix: Path) -> list[Record]:
    """The records of all packages in a prefix, sorted by file name."""
    return [Record(path) for path in sorted(prefix.glob("conda-meta/*-*-*.json"))]


def unhash_links(records: Iterable[Record]) -> None:
    """Take from symbolic links the sha256 that rattler gives them, as conda has none: unsaved.

    It is that of the link's text. `conda doctor` compares it with what it reads through the link,
    and calls every link altered.
    """
    for record in records:
        for entry in record.entries:
            if entry.get("path_type") == "softlink":
                entry.pop("sha256_in_prefix", None)


def note_sizes(records: Iterable[Record]) -> None:
    """Give files with the prefix in them the size that they have: unsaved.

    Where the disk refused such a file once, rattler notes the size that it has in the package.
    """
    for record in records:
        for entry in record.entries:
            if entry.get("prefix_placeholder"):
                path = record.path.parents[1] / entry["_path"]
                entry["size_in_bytes"] = path.lstat().st_size


def refuse_copies(records: Iterable[Record]) -> None:
    """Stop where rattler has put a copy, as the disk would not make a link.

    Raises:
        WorkError: names the first one.
    """
    for record in records:
        for entry in record.entries:
            path = record.path.parents[1] / entry["_path"]
            if entry.get("path_type") == "softlink" and path.is_file() and not path.is_symlink():
                raise WorkError(
                    f"{path} cannot be made a link", "check the disk, and run the command again"
                )


def write_history(prefix: Path, command: str, specs: list[str], records: list[Record]) -> None:
    """Append one event to conda's history: what was asked for and what is there now."""
    path = prefix / "conda-meta" / "history"
    before = path.read_text(encoding="utf-8") if path.is_file() else ""
    present = [
        f"+{str(r.data['channel']).rstrip('/')}/{r.data['subdir']}::{r.stem}" for r in records
    ]
    lines = [
        f"==> {datetime.now(UTC):%Y-%m-%d %H:%M:%S} <==",
        f"# cmd: {command}",
        *present,
        f"# update specs: {json.dumps(specs)}",
    ]
    write_atomic(path, before + "\n".join(lines) + "\n")
