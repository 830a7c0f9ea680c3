"""The Python distributions in a package: who installed them, their files, their names on PyPI.

One place for all packages, however they were built: from wheels, by CMake, by pip, from Debian's.
https://packaging.python.org/en/latest/specifications/recording-installed-packages/
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import posixpath
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from ddlce.audit.facts import installed_path

#: Metadata of an installed distribution; one that another has inside lies deeper.
_METADATA = re.compile(
    r"((?:lib/python[^/]+/)?site-packages/([^/]+?)-([^/-]+)(?:-py[^/-]+)?\.(?:dist|egg)-info)"
    r"(?:/METADATA|/PKG-INFO)?"
)

#: Whose folder is as deep as any other's in an environment.
_SITE = "lib/python3/site-packages"


@dataclass(frozen=True)
class Distribution:
    """An installed distribution.

    Attributes:
        name: its canonical name (PEP 503).
        version: as its folder says.
        folder: where its metadata are, relative to the package.
    """

    name: str
    version: str
    folder: str

    @property
    def purl(self) -> str:
        """Its package URL on PyPI, which knows no local versions (`+cpu`)."""
        try:
            version = f"@{Version(self.version).public}"
        except InvalidVersion:
            version = ""
        return f"pkg:pypi/{self.name}{version.replace('!', '%21')}"


def distributions(paths: Iterable[str]) -> list[Distribution]:
    """The distributions that a package installs, by the paths of its files; sorted by name."""
    found = {m[1]: m for path in paths if (m := _METADATA.fullmatch(path))}
    made = [Distribution(canonicalize_name(m[2]), m[3], folder) for folder, m in found.items()]
    return sorted(made, key=lambda d: d.name)


def installation_records(entries: list[dict[str, Any]], scripts: Iterable[str]) -> dict[str, bytes]:
    """INSTALLER and RECORD of a package's distributions, by path.

    pip names the installer when it refuses what is not its own; by RECORD it, uv and
    importlib.metadata know the files. All files of a package are its distribution's, libraries
    and headers too. Of two distributions in one package nobody knows which file is whose: they
    have no RECORD, and pip then leaves them alone.

    Args:
        entries: of paths.json.
        scripts: the commands that the installer of a `noarch: python` package writes.
    """
    folders = [
        d.folder
        for d in distributions(entry["_path"] for entry in entries)
        if d.folder.endswith(".dist-info")
    ]
    records = {f"{folder}/INSTALLER": b"conda\n" for folder in folders}
    if len(folders) == 1:
        record = f"{folders[0]}/RECORD"
        own = {record, f"{folders[0]}/INSTALLER"}
        lines = [_line(entry) for entry in entries if entry["_path"] not in own]
        lines += [(_from_site(f"bin/{name}"), "", "") for name in scripts]
        lines += [(_from_site(path), *_digest(data)) for path, data in records.items()]
        lines.append((_from_site(record), "", ""))
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(sorted(lines))
        records[record] = text.getvalue().encode()
    return records


def _line(entry: dict[str, Any]) -> tuple[str, str, str]:
    """A line of RECORD. Files that installing changes, and bytecode, have no digest."""
    path = entry["_path"]
    changes = entry.get("prefix_placeholder") or entry["path_type"] != "hardlink"
    if changes or path.endswith(".pyc"):
        return (_from_site(path), "", "")
    return (_from_site(path), _sha256(bytes.fromhex(entry["sha256"])), str(entry["size_in_bytes"]))


def _from_site(path: str) -> str:
    """A file's place relative to site-packages, whatever python it is installed for."""
    installed = re.sub(r"^lib/python[^/]+/site-packages/", f"{_SITE}/", installed_path(path, "3"))
    return posixpath.relpath(installed, _SITE)


def _digest(data: bytes) -> tuple[str, str]:
    return _sha256(hashlib.sha256(data).digest()), str(len(data))


def _sha256(digest: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
