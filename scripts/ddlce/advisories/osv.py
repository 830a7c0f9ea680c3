"""Advisories in the OSV format (https://ossf.github.io/osv-schema), of PyPI and Debian."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cmp_to_key
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from ddlce.advisories import debversion
from ddlce.advisories.model import Advisory

#: Debian's releases, by the numbers that OSV has.
DEBIAN = {"10": "buster", "11": "bullseye", "12": "bookworm", "13": "trixie", "14": "forky"}

CVE = re.compile(r"CVE-\d{4}-\d{4,}")

#: Less than, equal to or greater than 0, as the first version is older, the same or newer.
Compare = Callable[[str, str], int]


def is_osv(data: Any) -> bool:
    """Whether a document is an advisory in this format."""
    return isinstance(data, dict) and {"id", "modified"} <= data.keys()


def read(data: Mapping[str, Any]) -> Iterator[Advisory]:
    """The advisories of a document: one for each package that it is about, and none if withdrawn.

    Raises:
        KeyError, TypeError, ValueError: it is not in the format.
    """
    if data.get("withdrawn"):
        return
    numbers = [data["id"], *data.get("aliases", ()), *data.get("upstream", ())]
    holes = sorted({hole for number in numbers for hole in CVE.findall(number)})
    for affected in data.get("affected", ()):
        package = affected.get("package")
        found = _place(package["ecosystem"], package["name"]) if package else None
        if found is None:
            continue
        ecosystem, name, compare = found
        for hole in holes or [data["id"]]:
            yield Advisory(
                names=(hole, *(n for n in dict.fromkeys(numbers) if n != hole)),
                ecosystem=ecosystem,
                name=name,
                affects=_affects(affected, compare),
                fixed=tuple(_fixed(affected)),
                severity=_severity(data, affected),
                summary=data.get("summary") or data.get("details", "").strip().split("\n")[0],
                modified=str(data["modified"]),
            )


def _place(ecosystem: str, name: str) -> tuple[str, str, Compare] | None:
    """Ecosystem and name as parts have them, and the order of its versions."""
    kind, _, number = ecosystem.partition(":")
    if kind == "PyPI":
        return kind, canonicalize_name(name), _compare_python
    if kind == "Debian" and number in DEBIAN:
        return f"{kind}:{DEBIAN[number]}", name, debversion.compare
    return None


def _compare_python(one: str, other: str) -> int:
    """By PEP 440; a local part (`+cpu`) says how it was built, not what is in it."""
    mine, theirs = (Version(Version(text).public) for text in (one, other))
    return (mine > theirs) - (mine < theirs)


def _affects(affected: Mapping[str, Any], compare: Compare) -> Callable[[str], bool]:
    ranges = [r for r in affected.get("ranges", ()) if r["type"] in ("ECOSYSTEM", "SEMVER")]
    listed = affected.get("versions", ())

    def affects(version: str) -> bool:
        if any(_inside(version, each["events"], compare) for each in ranges):
            return True
        return any(_same(version, each, compare) for each in listed)

    return affects


def _same(version: str, other: str, compare: Compare) -> bool:
    try:
        return compare(version, other) == 0
    except InvalidVersion:  # of before PEP 440
        return version == other


def _inside(version: str, events: list[Mapping[str, str]], compare: Compare) -> bool:
    """Whether a version is between an `introduced` and the `fixed` or `last_affected` after it."""
    inside = False
    pairs = [(kind, at) for event in events for kind, at in event.items()]

    def by_version(one: tuple[str, str], other: tuple[str, str]) -> int:
        return _order(one[1], other[1], compare)

    for kind, at in sorted(pairs, key=cmp_to_key(by_version)):
        order = _order(version, at, compare)
        if kind == "introduced" and order >= 0:
            inside = True
        elif (kind in ("fixed", "limit") and order >= 0) or (kind == "last_affected" and order > 0):
            inside = False
    return inside


def _order(one: str, other: str, compare: Compare) -> int:
    """With `0`, which is before all versions."""
    if "0" in (one, other):
        return (one != "0") - (other != "0")
    return compare(one, other)


def _fixed(affected: Mapping[str, Any]) -> Iterator[str]:
    for each in affected.get("ranges", ()):
        if each["type"] != "GIT":
            yield from (event["fixed"] for event in each["events"] if "fixed" in event)


def _severity(data: Mapping[str, Any], affected: Mapping[str, Any]) -> str:
    """The word of the database, or else the vector of CVSS."""
    places: list[Any] = [data.get("database_specific"), affected.get("ecosystem_specific")]
    for place in filter(None, places):
        if word := place.get("severity") or place.get("urgency"):
            return str(word).lower()
    vectors: list[Any] = [*affected.get("severity", ()), *data.get("severity", ())]
    return str(vectors[0]["score"]) if vectors else ""
