"""Finds the holes of a release: its parts, the advisories of a folder, and our statements."""

from __future__ import annotations

import zipfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from ddlce import jsontext, yamltext
from ddlce.advisories import changelog, osv, tracker
from ddlce.advisories.model import Advisory, Finding, Part, Status
from ddlce.advisories.parts import places_of
from ddlce.advisories.statements import Statement
from ddlce.errors import InputError
from ddlce.words import some

SUFFIXES = (".json", ".yaml", ".yml")

CARRY = (
    "carry in OSV's dumps (PyPI/all.zip, Debian/all.zip), the data/json of Debian's tracker, or "
    "Debian's packages with their changelogs"
)


@dataclass(frozen=True)
class Result:
    """What the advisories of a folder say of a release.

    Attributes:
        findings: open ones first.
        parts: how many were looked up.
        advisories: how many were read, those of other packages too.
        newest: when the newest of them last changed, as its data say, or "".
        left: parts of ecosystems of which there are no advisories.
    """

    findings: tuple[Finding, ...]
    parts: int
    advisories: int
    newest: str
    left: tuple[Part, ...]

    def of_status(self, status: Status) -> list[Finding]:
        """The findings of a status."""
        return [finding for finding in self.findings if finding.status == status]


def gaps(left: Iterable[Part]) -> Iterator[str]:
    """Why parts were not looked up, a text for each ecosystem."""
    packages: dict[str, set[str]] = defaultdict(set)
    for part in left:
        packages[part.ecosystem].add(part.package)
    for ecosystem, names in packages.items():
        yield f"since the data have nothing of {ecosystem}: {some(names)}"


def find_holes(parts: Sequence[Part], folder: Path, statements: Iterable[Statement]) -> Result:
    """Look up every part.

    Args:
        folder: of OSV's documents, YAML and JSON, in zip files too, Debian's list, and packages
            and texts with Debian's changelogs; or one file.

    Raises:
        InputError: a file is not in one of these formats, or there is none.
    """
    wanted: dict[tuple[str, str], list[Part]] = defaultdict(list)
    for part in parts:
        for ecosystem in places_of(part):
            wanted[ecosystem, part.name].append(part)
    known: set[str] = set()
    said = {(each.package, each.vulnerability): each for each in statements}
    found: dict[tuple[Part, str], Finding] = {}
    count, newest = 0, ""
    for name, data in _documents(folder):
        for advisory in _read(name, data):
            count, newest = count + 1, max(newest, advisory.modified)
            known.add(advisory.ecosystem)
            for part in wanted.get((advisory.ecosystem, advisory.name), ()):
                if _affects(name, advisory, part):
                    finding = _finding(advisory, part, said)
                    key = (part, finding.hole)
                    found[key] = _joined(found[key], finding) if key in found else finding
    if not count:
        raise InputError(f"{folder}: no advisories in it", CARRY)
    ordered = sorted(
        found.values(), key=lambda f: (f.status != "open", f.part.package, f.part.name, f.hole)
    )
    left = tuple(part for part in parts if known.isdisjoint(places_of(part)))
    return Result(tuple(ordered), len(parts) - len(left), count, newest, left)


def _documents(folder: Path) -> Iterator[tuple[str, Any]]:
    """Name and content of each document; a changelog is a text."""
    paths = sorted(folder.rglob("*")) if folder.is_dir() else [folder]
    if not folder.exists():
        raise InputError(f"there is no {folder}", CARRY)
    for path in paths:
        if path.suffix == ".zip":
            try:
                with zipfile.ZipFile(path) as archive:
                    for member in archive.infolist():
                        if member.filename.endswith(SUFFIXES):
                            if member.file_size > jsontext.LONGEST:
                                raise ValueError(f"{member.filename} is too long")
                            name = f"{path}: {member.filename}"
                            yield name, _parsed(name, archive.read(member))
            except (zipfile.BadZipFile, ValueError) as error:
                raise InputError(f"{path}: not a zip file: {error}", CARRY) from error
        elif changelog.has_changelog(path) and path.is_file():
            yield str(path), _changelog(path)
        elif path.suffix in SUFFIXES and path.is_file():
            yield str(path), _parsed(str(path), path.read_bytes())


def _changelog(path: Path) -> str:
    try:
        return changelog.text_of(path)
    except changelog.Missing:
        raise InputError(
            f"{path}: no changelog in it",
            "take another package of the same source, or leave this one out",
        ) from None
    except ValueError as error:
        raise InputError(f"{path}: cannot be read: {error}", CARRY) from error


def _parsed(name: str, content: bytes) -> Any:
    try:
        return jsontext.load(content) if name.endswith(".json") else yamltext.load(content.decode())
    except (ValueError, yaml.YAMLError) as error:
        raise InputError(f"{name}: cannot be read: {error}", CARRY) from error


def _read(name: str, data: Any) -> Iterator[Advisory]:
    if isinstance(data, str) and not name.endswith(SUFFIXES):
        read = changelog.read(data)
    elif osv.is_osv(data):
        read = osv.read(data)
    elif tracker.is_tracker(data):
        read = tracker.read(data)
    else:
        raise InputError(f"{name}: neither OSV's format nor that of Debian's tracker", CARRY)
    try:
        yield from read
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{name}: not in the format: {error!r}", CARRY) from error


def _affects(name: str, advisory: Advisory, part: Part) -> bool:
    try:
        return advisory.affects(part.version)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{name}: not in the format: {error!r}", CARRY) from error


def _finding(advisory: Advisory, part: Part, said: dict[tuple[str, str], Statement]) -> Finding:
    status: Status = "open"
    why = ""
    statement = next((s for n in advisory.names if (s := said.get((part.package, n)))), None)
    if mended := sorted(part.mended & {*advisory.names}):
        status, why = "fixed", f"by the patch for {mended[0]}"
    elif statement:
        status = "fixed" if statement.status == "fixed" else "not affected"
        why = statement.statement + (f" ({statement.test})" if statement.test else "")
    return Finding(
        *(part, advisory.names[0], advisory.names, status, advisory.fixed),
        *(advisory.severity, advisory.summary, why),
    )


def _joined(one: Finding, other: Finding) -> Finding:
    """One hole, of which two databases tell."""
    return replace(
        one,
        names=tuple(dict.fromkeys((*one.names, *other.names))),
        fixed=tuple(dict.fromkeys((*one.fixed, *other.fixed))),
        severity=one.severity or other.severity,
        summary=one.summary or other.summary,
    )
