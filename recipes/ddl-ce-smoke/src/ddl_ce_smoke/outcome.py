"""The outcome of a training by any framework, the demands on it, and its lines in the report."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ddl_ce_smoke.model import Throughput, with_efficiency
from ddl_ce_smoke.rank import Journal

LEAST_ACCURACY = 0.95
#: The mean gradient against one process's on the same samples: float32 rounding, no more.
GRADIENT_TOLERANCE = 1e-4


@dataclass(frozen=True)
class Outcome:
    """The outcome of training on `ranks` ranks.

    Attributes:
        identical: the weights of all ranks have the same bits.
        gradient_error: largest difference between the ranks' mean gradients and those of one
            process on the union of the ranks' batches, relative to the largest gradient.
    """

    ranks: int
    accuracy: float
    identical: bool
    gradient_error: float
    samples_per_second: float
    oversubscribed: bool

    def problems(self) -> list[str]:
        """The demands that the outcome does not meet, one line each."""
        found = []
        if self.accuracy < LEAST_ACCURACY:
            found.append(f"test accuracy {self.accuracy:.1%} is below {LEAST_ACCURACY:.0%}")
        if not self.identical:
            found.append("the ranks' weights differ")
        if not self.gradient_error < GRADIENT_TOLERANCE:  # so that NaN fails
            found.append(
                f"the averaged gradients differ by {self.gradient_error:.2g} (relative) from "
                "those of one process on the same samples"
            )
        return found


def digest(weights: Iterable[Any]) -> bytes:
    """The sha256 of all weights, NumPy arrays, in their order: 32 bytes."""
    digest = hashlib.sha256()
    for array in weights:
        digest.update(array.tobytes())
    return digest.digest()


def throughput(outcomes: Sequence[Outcome], backend: str, device: str) -> list[Throughput]:
    """The rows of the report."""
    return with_efficiency(
        [
            Throughput(
                backend, device, o.ranks, o.accuracy, o.samples_per_second, None, o.oversubscribed
            )
            for o in outcomes
        ]
    )


def table(rows: Sequence[Throughput], outcomes: Sequence[Outcome]) -> str:
    """The table that a user reads."""
    lines = [f"{'ranks':>5}  {'accuracy':>8}  {'weights':<9}  {'samples/s':>9}  {'efficiency':>10}"]
    for row, outcome in zip(rows, outcomes, strict=True):
        weights = "identical" if outcome.identical else "DIFFER"
        efficiency = f"{row.efficiency:.0%}" if row.efficiency is not None else "-"
        note = "  more ranks than cores" if row.oversubscribed else ""
        lines.append(
            f"{row.ranks:>5}  {outcome.accuracy:>8.1%}  {weights:<9}  "
            f"{row.samples_per_second:>9,.0f}  {efficiency:>10}{note}"
        )
    return "\n".join(lines)


def tell(
    title: str, outcomes: Sequence[Outcome], backend: str, device: str, record: Journal
) -> None:
    """Called by rank 0: writes the rows to its journal and prints the table that the user reads."""
    rows = throughput(outcomes, backend, device)
    for row in rows:
        record.write("throughput", **asdict(row))
    print(f"{title}\n{table(rows, outcomes)}")
    for outcome in outcomes:
        for problem in outcome.problems():
            print(f"FAILED on {outcome.ranks} ranks: {problem}")
