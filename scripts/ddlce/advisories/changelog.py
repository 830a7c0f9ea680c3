"""Debian's changelogs, which name the holes that each version mends: apt brings them anywhere.

They tell of no hole before it is mended, so the other formats tell more. The package python-debian
reads them, too; it is under the GPL, and ddlce is under the Apache licence.
"""

from __future__ import annotations

import gzip
import lzma
import re
import tarfile
import zlib
from collections.abc import Callable, Iterator
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import IO

from ddlce import jsontext
from ddlce.advisories import debversion
from ddlce.advisories.model import Advisory
from ddlce.advisories.osv import CVE, DEBIAN
from ddlce.errors import SourceError
from ddlce.sources.debfile import deb_member

#: How the names of files with changelogs end: apt-get's own text, packages, and their sources.
TEXT, PACKAGE, SOURCE = ".changelog", ".deb", re.compile(r"\.debian\.tar\.\w+$")

#: `expat (2.5.0-1+deb12u5) bookworm-security; urgency=medium`.
HEAD = re.compile(
    r"(?m)^(?P<name>[a-z0-9][a-z0-9+.-]*) \((?P<version>[^()\s]+)\)(?P<suites>[^;]*);"
)

#: ` -- Name <address>  Thu, 22 Oct 2026 00:34:41 +0200`.
TAIL = re.compile(r"(?m)^ -- .*>  (?P<date>.+)$")

#: A new point of the list that an entry is.
POINT = re.compile(r"(?m)^\s+[*+-] ")

#: In a version: the number of Debian's release.
RELEASE = re.compile(r"[+~]deb(\d+)u")

#: Where a package has its changelog; the second name is of packages that are Debian's own.
PLACES = tuple(
    re.compile(rf"(\./)?usr/share/doc/[^/]+/{name}\.gz")
    for name in ("changelog.Debian", "changelog")
)


class Missing(Exception):
    """A package has no changelog: the folder of its documents leads to another package's."""


def has_changelog(path: Path) -> bool:
    """Whether a file is of a kind that has one."""
    return path.name.endswith((TEXT, PACKAGE)) or bool(SOURCE.search(path.name))


def text_of(path: Path) -> str:
    """The changelog in a file.

    Raises:
        Missing: there is none in the package.
        ValueError: the file cannot be read.
    """
    try:
        if path.name.endswith(TEXT):
            with path.open("rb") as stream:
                return _text(stream)
        if path.name.endswith(PACKAGE):
            with deb_member(path, "data") as tar:
                members = [m for m in tar.getmembers() if m.isfile()]
                chosen = next(
                    (m for place in PLACES for m in members if place.fullmatch(m.name)), None
                )
                content = tar.extractfile(chosen) if chosen else None
                if content is None:
                    raise Missing
                with gzip.open(content) as unpacked:
                    return _text(unpacked)
        with tarfile.open(path) as tar:
            names = ("debian/changelog", "./debian/changelog")
            found = next((m for m in tar if m.name in names and m.isfile()), None)
            content = tar.extractfile(found) if found else None
            if content is None:
                raise Missing
            return _text(content)
    except SourceError as error:
        raise ValueError(error.message.removeprefix(f"{path}: ")) from error
    except (OSError, EOFError, tarfile.TarError, lzma.LZMAError, zlib.error) as error:
        raise ValueError(str(error)) from error


def _text(stream: IO[bytes] | gzip.GzipFile) -> str:
    data = stream.read(jsontext.LONGEST + 1)
    if len(data) > jsontext.LONGEST:
        raise ValueError(f"longer than {jsontext.LONGEST} bytes")
    return data.decode("utf-8", "replace")


def read(text: str) -> Iterator[Advisory]:
    """The advisories in a changelog: one for each hole, and release of Debian that it may be of.

    The newest version that names a hole counts: a fix that came in parts is whole in the last one.

    Raises:
        ValueError: it is no changelog of Debian's.
    """
    heads = [*HEAD.finditer(text)]
    if not heads:
        raise ValueError("no changelog of Debian's")
    suites = _suites(heads[0]["suites"], heads[0]["version"])
    seen: set[str] = set()
    for head, after in zip(heads, [*heads[1:], None], strict=True):
        entry = text[head.end() : after.start() if after else None]
        modified = _date(entry)
        for point in POINT.split(TAIL.sub("", entry))[1:]:
            for hole in dict.fromkeys(CVE.findall(point.upper())):
                if hole in seen:
                    continue
                seen.add(hole)
                for suite in suites:
                    yield Advisory(
                        names=(hole,),
                        ecosystem=f"Debian:{suite}",
                        name=head["name"],
                        affects=_before(head["version"]),
                        fixed=(head["version"],),
                        summary=" ".join(point.split()),
                        modified=modified,
                    )


def _suites(named: str, version: str) -> list[str]:
    """The releases that the changelog may be of: where it does not say, all, to miss none."""
    names = [word.partition("-")[0] for word in named.split()]
    if known := [name for name in names if name in DEBIAN.values()]:
        return known
    found = RELEASE.search(version)
    return [DEBIAN[found[1]]] if found and found[1] in DEBIAN else [*DEBIAN.values()]


def _before(fixed: str) -> Callable[[str], bool]:
    return lambda version: debversion.compare(version, fixed) < 0


def _date(entry: str) -> str:
    found = TAIL.search(entry)
    try:
        return parsedate_to_datetime(found["date"]).isoformat() if found else ""
    except ValueError:
        return ""
