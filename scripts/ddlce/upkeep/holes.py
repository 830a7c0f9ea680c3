"""The known holes that come and go from one lock to another."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ddlce.advisories.match import find_holes
from ddlce.advisories.model import Finding, Part, Status
from ddlce.advisories.parts import read_parts
from ddlce.advisories.statements import Statement
from ddlce.lockdiff import Difference
from ddlce.model.envlock import EnvLock
from ddlce.sbom.release import Release


@dataclass(frozen=True)
class Hole:
    """A hole in a package of either lock; None stands for the one that does not have it."""

    package: str
    hole: str
    old: Status | None
    new: Status | None

    @property
    def rank(self) -> int:
        """New ones come first, then those that stay open, those that are closed, and the rest."""
        return [(False, True), (True, True), (True, False), (False, False)].index(
            (self.old == "open", self.new == "open")
        )


@dataclass(frozen=True)
class Holes:
    """What advisories say of two locks.

    Attributes:
        rows: by rank.
        advisories, newest, left: as of a `Result`.
    """

    rows: tuple[Hole, ...]
    advisories: int
    newest: str
    left: tuple[Part, ...]

    def count(self, rank: int) -> int:
        """How many rows have a rank."""
        return sum(row.rank == rank for row in self.rows)


def compare_holes(
    difference: Difference, data: Path, sboms: Path, statements: Iterable[Statement]
) -> Holes:
    """Look up the parts of both locks.

    Args:
        sboms: the folder with the locks' SBOMs.
        statements: what this tree says of holes, which counts for both.

    Raises:
        InputError: an SBOM is missing or of another lock, or the data are in no format.
    """
    old, new = (parts_of(lock, sboms) for lock in (difference.old, difference.new))
    result = find_holes([*dict.fromkeys((*old, *new))], data, statements)
    before, after = _statuses(result.findings, old), _statuses(result.findings, new)
    rows = [Hole(*key, before.get(key), after.get(key)) for key in {**before, **after}]
    ordered = sorted(rows, key=lambda row: (row.rank, row.package, row.hole))
    return Holes(tuple(ordered), result.advisories, result.newest, result.left)


def parts_of(lock: EnvLock, sboms: Path) -> list[Part]:
    """The parts in the SBOM of just this lock.

    Raises:
        InputError: there is none.
    """
    return read_parts(sboms / f"{Release.of(lock).name}.cdx.json", lock)


def _statuses(findings: Iterable[Finding], parts: Iterable[Part]) -> dict[tuple[str, str], Status]:
    """Package and hole → its status; open where one of several parts has it open."""
    chosen = {*parts}
    found: dict[tuple[str, str], Status] = {}
    for finding in findings:
        key = (finding.part.package, finding.hole)
        if finding.part in chosen and found.get(key) != "open":
            found[key] = finding.status
    return found
