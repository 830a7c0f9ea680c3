"""Allreduce in the lab: a shaped cluster of network namespaces, beside other libraries.

    python tests/bench/bench_lab.py --layouts racks-2x4 --orders sorted interleaved --peers ddl
    python tests/bench/bench_lab.py --quick

Needs root. Repetitions are interleaved over the libraries. Prints a line for each run, then the
table, and writes both as JSON. `--quick` runs libddl alone in a few layouts, in a minute or two,
and ends with 1 when an uplink carries more than 1.03 times the buffer or a call takes longer than
1.15 times the lower bound.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.console import Console

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.lab.cell import Budget, Cell, measure
from bench.lab.layout import SHAPES, parse_layout
from bench.lab.network import LabError, bring_up
from bench.lab.peers.base import Peer, Unavailable
from bench.lab.peers.ddl import Ddl
from bench.lab.peers.mpich import Mpich
from bench.lab.report import cell_text, make_table

RESULTS = Path(__file__).parent / "results"


def main() -> None:
    """Run the cells, print the table, write the JSON."""
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("--layouts", nargs="+", default=list(SHAPES))
    ask.add_argument("--orders", nargs="+", default=["sorted", "interleaved"])
    ask.add_argument("--sizes", nargs="+", type=int, default=[4 << 20], help="bytes")
    ask.add_argument("--peers", nargs="+", default=["ddl"])
    ask.add_argument("--repetitions", type=int, default=1)
    ask.add_argument("--iterations", type=int, default=7)
    ask.add_argument("--limit", type=float, default=60, help="seconds for a cell")
    ask.add_argument("--host-mbit", type=float, default=250)
    ask.add_argument("--uplink-mbit", type=float, default=50)
    ask.add_argument("--ddl-prefix", type=Path)
    ask.add_argument("--mpi-prefix", type=Path)
    ask.add_argument("--out", type=Path)
    options = ask.parse_args()
    every: list[Peer] = [
        Ddl(options.ddl_prefix, options.mpi_prefix),
        Ddl(options.ddl_prefix, options.mpi_prefix, topology=True),
        Mpich(),
    ]
    peers = [peer for peer in every if peer.name in options.peers]
    for peer in peers:
        peer.prepare()
    budget = Budget(options.iterations, limit=options.limit)
    cells: list[Cell] = []
    for name in options.layouts:
        with bring_up(parse_layout(name, options.host_mbit, options.uplink_mbit)) as lab:
            for order in options.orders:
                for nbytes in options.sizes:
                    for _ in range(options.repetitions):
                        for peer in peers:
                            cells.append(measure(lab, order, nbytes, peer, budget))
                            print(cell_text(cells[-1]), flush=True)
    Console(width=110).print(make_table(cells))


if __name__ == "__main__":
    try:
        main()
    except (LabError, Unavailable) as error:
        sys.exit(f"error: {error}")
