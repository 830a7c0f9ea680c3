"""What libddl has to reach in the lab, and which rows fall short of it.

The figures are issue 3's ("The bar"). They hold from 4 MiB up; below, the table only shows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from bench.lab.cell import Cell
from bench.lab.layout import Layout, parse_layout
from bench.lab.report import best, median, sections, where_text

LEAST_SIZE = 4 << 20


@dataclass(frozen=True)
class Demand:
    """What a row has to reach.

    Attributes:
        bound: its median, by the lower bound, at most.
        uplink: the bytes on the busiest uplink, by the buffer's size, at most.
        peer: the best other library's median by its own, at least.
        mpi: the best MPI's median by its own, at least.
        gloo: Gloo's median by its own, at least.
    """

    bound: float = math.inf
    uplink: float = math.inf
    peer: float = 0
    mpi: float = 0
    gloo: float = 0


QUICK = Demand(bound=1.15, uplink=1.03)
"""What continuous integration demands, of every layout and size."""


def demand(layout: Layout, order: str) -> Demand:
    """What the issue demands in a layout and order of ranks."""
    # Between n groups every byte crosses each link 2 (n - 1) / n times: once, between two.
    uplink = 1.03 * 2 * (len(layout.racks) - 1) / len(layout.racks)
    if layout.slow:
        return Demand(bound=1.07, uplink=uplink, peer=1.4)
    if len(layout.racks) == 1:
        return Demand(peer=1.0 if layout.ranks_per_host == 1 else 0)
    uneven = len(set(layout.racks)) > 1
    if uneven or any(math.log2(n) % 1 for n in (*layout.racks, len(layout.racks))):
        return Demand(bound=1.10, uplink=uplink, mpi=4, gloo=1.5)
    if order == "sorted":
        return Demand(bound=1.07, uplink=uplink, peer=1.75 if layout.ranks_per_host > 1 else 1.35)
    return Demand(bound=1.07, uplink=uplink, peer=4)


def shortfalls(cells: list[Cell], quick: bool = False) -> list[str]:
    """A line for everything that a row of libddl does not reach."""
    lines = []
    for rows in sections(cells):
        for name, same in rows.items():
            if not name.startswith("ddl") or (same[0].nbytes < LEAST_SIZE and not quick):
                continue
            wanted = QUICK if quick else demand(parse_layout(same[0].layout), same[0].order)
            lines += [f"{where_text(same[0])}: {why}" for why in _misses(same, rows, wanted)]
    return lines


def _misses(same: list[Cell], rows: dict[str, list[Cell]], wanted: Demand) -> list[str]:
    middle = median(same)
    failed = sorted({cell.failure for cell in same if cell.failure})
    if middle is None or failed:
        return failed
    said = []
    uplink, ratio = max(cell.uplink for cell in same), middle / same[0].bound
    if uplink > wanted.uplink:
        said.append(f"an uplink carries {uplink:.2f} x the buffer; at most {wanted.uplink:.2f}")
    if ratio > wanted.bound:
        said.append(f"{ratio:.2f} x the lower bound; at most {wanted.bound}")
    mpi = {name: cells for name, cells in rows.items() if "mpi" in name}
    gloo = {name: cells for name, cells in rows.items() if name == "gloo"}
    least = ((wanted.peer, rows, "peer"), (wanted.mpi, mpi, "MPI"), (wanted.gloo, gloo, "Gloo"))
    for factor, others, who in least:
        other = best(others, ours=False)
        if other is not None and other / middle < factor:
            said.append(f"the best {who} takes {other / middle:.2f} x as long; at least {factor}")
    return said
