"""Advisories, and the parts of a release that they may be about, in no format's words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

#: `open`: nothing mends it; `fixed`: by a patch of ours; `not affected`: by what a statement says.
Status = Literal["open", "fixed", "not affected"]


@dataclass(frozen=True)
class Part:
    """A project's release inside a package of ours.

    Attributes:
        package: ours, that has it.
        ecosystem: `PyPI`, or `Debian:bookworm`.
        name: as the ecosystem calls it: canonical, or Debian's source package.
        version: in the ecosystem's notation.
        mended: the numbers of the holes that our package's patches close.
    """

    package: str
    ecosystem: str
    name: str
    version: str
    mended: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Advisory:
    """A hole in some versions of a part.

    Attributes:
        names: all its numbers, the one to show first: CVE's where it has one.
        ecosystem, name: as of a part.
        affects: whether a version has the hole.
        fixed: versions that do not have it any more.
        severity: the data's own words, or "".
        summary: one line, or "".
        modified: when the data last changed, ISO 8601, or "".
    """

    names: tuple[str, ...]
    ecosystem: str
    name: str
    affects: Callable[[str], bool]
    fixed: tuple[str, ...] = ()
    severity: str = ""
    summary: str = ""
    modified: str = ""


@dataclass(frozen=True)
class Finding:
    """A hole in a part of a release, with what there is to say of it.

    Attributes:
        hole: its first number.
        names: all of them.
        why: of a status that is not `open`: the patch, or the statement.
    """

    part: Part
    hole: str
    names: tuple[str, ...]
    status: Status
    fixed: tuple[str, ...]
    severity: str
    summary: str
    why: str = ""
