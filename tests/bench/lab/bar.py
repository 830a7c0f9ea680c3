"""What libddl has to reach in the lab, and what it reaches.

The figures are those of the bar (bar.md). They hold from 4 MiB up; below, the table only shows.
Judged is libddl that knows the topology, told or probed. The row `ddl`, which does not, only shows
the worth of that.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from bench.check import Check
from bench.lab.cell import Cell
from bench.lab.layout import Layout, parse_layout
from bench.lab.report import best, median, sections, where_text

LEAST_SIZE = 4 << 20
JUDGED = ("ddl-topology", "ddl-probe")
PROBE_SECONDS = 10

SHAPED = "Shaped racks, any layout, any rank order, >= 4 MiB"
SORTED = "Sorted order, best of all peers"
MIXED = "Interleaved and random order, best of all peers"
RAGGED = "Racks that are no power of two, ragged racks"
SLOW = "One slow host"
FLAT = "Flat network, 1 rank per host"
PROBE = "Probe"
SHORT = "The short version that CI runs"


@dataclass(frozen=True)
class Demand:
    """What a row of the bar asks for.

    Attributes:
        row: its name.
        bound: the median, by the lower bound, at most.
        uplink: the bytes on the busiest uplink, by the buffer's size, at most.
        peer: the best other library's median by our own, at least.
        mpi: the best MPI's median by our own, at least.
        gloo: Gloo's median by our own, at least.
    """

    row: str
    bound: float = math.inf
    uplink: float = math.inf
    peer: float = 0
    mpi: float = 0
    gloo: float = 0


def uplink_limit(layout: Layout) -> float:
    """Between n racks every byte crosses each uplink 2 (n - 1) / n times: once, between two."""
    return 1.03 * 2 * (len(layout.racks) - 1) / len(layout.racks)


def demands(layout: Layout, order: str) -> list[Demand]:
    """What the bar demands in a layout and order of ranks."""
    several = layout.ranks_per_host > 1
    if len(layout.racks) == 1:
        if layout.slow:
            return [Demand(SLOW, bound=1.07, peer=1.4)]
        return [] if several else [Demand(FLAT, peer=1.0)]
    uneven = len(set(layout.racks)) > 1
    if uneven or any(math.log2(n) % 1 for n in (*layout.racks, len(layout.racks))):
        shaped = Demand(SHAPED, uplink=uplink_limit(layout))
        return [shaped, Demand(RAGGED, bound=1.10, mpi=4, gloo=1.5)]
    shaped = Demand(SHAPED, bound=1.07, uplink=uplink_limit(layout))
    if order == "sorted":
        return [shaped, Demand(SORTED, peer=1.75 if several else 1.35)]
    return [shaped, Demand(MIXED, peer=4)]


def checks(cells: list[Cell], quick: bool = False) -> list[Check]:
    """Everything that libddl reaches, and what it has to.

    Args:
        quick: as continuous integration demands, of every layout and size.
    """
    found: list[Check] = []
    for rows in sections(cells):
        for name in JUDGED:
            same = rows.get(name)
            if not same:
                continue
            layout, order = parse_layout(same[0].layout), same[0].order
            wanted = demands(layout, order)
            if quick:
                wanted = [Demand(SHORT, bound=1.15, uplink=uplink_limit(layout))]
            if quick or same[0].nbytes >= LEAST_SIZE:
                for demand in wanted:
                    found += _checks(same, rows, demand)
            if name == "ddl-probe":
                found += _probe_checks(same)
    return found


def _checks(same: list[Cell], rows: dict[str, list[Cell]], wanted: Demand) -> Iterator[Check]:
    where, middle = where_text(same[0]), median(same)
    for failure in sorted({cell.failure for cell in same if cell.failure}):
        yield Check(wanted.row, where, failure=failure)
    if middle is None:
        return
    bound = same[0].bound
    if wanted.uplink < math.inf:
        carried, what = max(cell.uplink for cell in same), "an uplink carries {} x the buffer"
        yield Check(wanted.row, where, what, carried, wanted.uplink, at_most=True)
    if wanted.bound < math.inf:
        what = "{} x the lower bound"
        yield Check(wanted.row, where, what, middle / bound, wanted.bound, at_most=True)
    mpi = {name: cells for name, cells in rows.items() if "mpi" in name}
    gloo = {name: cells for name, cells in rows.items() if name == "gloo"}
    least = ((wanted.peer, rows, "peer"), (wanted.mpi, mpi, "MPI"), (wanted.gloo, gloo, "Gloo"))
    for factor, others, who in least:
        other = best(others, ours=False)
        if factor and other is not None:
            who = f"the best {who}" if who != "Gloo" else who
            what, reason = who + " takes {} x as long", f"{who} is at {other / bound:.2f} of the"
            reason += " bound, so a library at the bound would not reach it"
            ratio, most = other / middle, other / bound
            yield Check(wanted.row, where, what, ratio, factor, reachable=most, reason=reason)


def _probe_checks(same: list[Cell]) -> Iterator[Check]:
    where = where_text(same[0])
    for failure in sorted({cell.failure for cell in same if cell.failure}):
        yield Check(PROBE, where, failure=failure)
    done = [cell for cell in same if cell.probe_seconds]
    if done:
        slowest = max(cell.probe_seconds for cell in done)
        yield Check(PROBE, where, "the probe takes {} s", slowest, PROBE_SECONDS, at_most=True)
        wrong = sorted({text for cell in done for text in cell.probe_wrong})
        what, failure = "the probe has {} things wrong", "; ".join(wrong)
        yield Check(PROBE, where, what, len(wrong), 0, at_most=True, failure=failure)
