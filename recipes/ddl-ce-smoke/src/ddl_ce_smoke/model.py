"""The results of a run of the suite: parts, their cases, and the measurements.

`Report.to_dict` is the JSON report; `report.schema.json` beside this file describes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Outcome = Literal["passed", "failed", "skipped"]

#: Raised when a field of the JSON report changes its meaning or goes away.
SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Case:
    """One case of a part.

    Attributes:
        name: unique within its part.
        message: one line: the result, or why it failed or was skipped.
        detail: more lines to look into a failure: a traceback, the last output.
    """

    name: str
    outcome: Outcome
    seconds: float = 0.0
    message: str = ""
    detail: str = ""


@dataclass(frozen=True)
class Throughput:
    """Training speed of one backend on one number of ranks.

    Attributes:
        accuracy: on the test split, 0 to 1; None where only speed was measured.
        samples_per_second: all ranks together.
        efficiency: samples_per_second / (ranks x that of one rank); None without a one-rank run.
        oversubscribed: more ranks than CPU cores, so that no speed-up can be expected.
    """

    backend: str
    device: str
    ranks: int
    accuracy: float | None
    samples_per_second: float
    efficiency: float | None
    oversubscribed: bool


@dataclass(frozen=True)
class Bandwidth:
    """Speed of one allreduce size on one backend.

    Attributes:
        nbytes: of the buffer that every rank reduces.
        seconds: for one call, on the slowest rank.
        algbw: nbytes / seconds, in bytes/s.
        busbw: algbw x 2(ranks-1)/ranks: the rate of the busiest link, comparable across ranks.
    """

    backend: str
    device: str
    ranks: int
    nbytes: int
    seconds: float
    algbw: float
    busbw: float

    @classmethod
    def measured(
        cls, backend: str, device: str, ranks: int, nbytes: int, seconds: float
    ) -> Bandwidth:
        """The row for `seconds` per call; `seconds` must be positive."""
        algbw = nbytes / seconds
        return cls(backend, device, ranks, nbytes, seconds, algbw, algbw * 2 * (ranks - 1) / ranks)


@dataclass(frozen=True)
class Link:
    """A link between hosts, as it was measured.

    Attributes:
        name: the host, or "uplink of HOST,HOST" for those of a rack.
        rate: bytes/s, one way.
    """

    name: str
    kind: Literal["host", "uplink"]
    rate: float


@dataclass
class Part:
    """A group of cases that ran together."""

    name: str
    title: str
    cases: list[Case] = field(default_factory=list)
    seconds: float = 0.0

    def count(self, outcome: Outcome) -> int:
        """The number of cases with this outcome."""
        return sum(case.outcome == outcome for case in self.cases)

    @property
    def outcome(self) -> Outcome:
        """Failed if any case failed; skipped if nothing ran; else passed."""
        if self.count("failed"):
            return "failed"
        return "passed" if self.count("passed") else "skipped"


@dataclass
class Report:
    """One run of the suite."""

    version: str
    prefix: str
    started: str
    command: str
    ranks: list[int]
    quick: bool
    machine: dict[str, str]
    parts: list[Part] = field(default_factory=list)
    throughput: list[Throughput] = field(default_factory=list)
    bandwidth: list[Bandwidth] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """Wall time of all parts."""
        return sum(part.seconds for part in self.parts)

    @property
    def passed(self) -> bool:
        """Nothing failed, and something ran."""
        outcomes = [part.outcome for part in self.parts]
        return "failed" not in outcomes and "passed" in outcomes

    def to_dict(self) -> dict[str, Any]:
        """The JSON report."""
        data = asdict(self)
        for part, row in zip(self.parts, data["parts"], strict=True):
            row["outcome"] = part.outcome
        return {"schema": SCHEMA_VERSION, "passed": self.passed, "seconds": self.seconds, **data}


def with_efficiency(rows: Sequence[Throughput]) -> list[Throughput]:
    """The rows with `efficiency` filled in from each backend's one-rank row, where there is one."""
    single = {(r.backend, r.device): r.samples_per_second for r in rows if r.ranks == 1}
    filled = []
    for row in rows:
        base = single.get((row.backend, row.device))
        efficiency = row.samples_per_second / (row.ranks * base) if base else None
        filled.append(Throughput(**{**asdict(row), "efficiency": efficiency}))
    return filled


def size_text(nbytes: float) -> str:
    """4096 -> '4 KiB'."""
    for unit in ("B", "KiB", "MiB"):
        if nbytes < 1024:
            return f"{nbytes:g} {unit}"
        nbytes /= 1024
    return f"{nbytes:g} GiB"
