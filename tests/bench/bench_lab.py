"""Allreduce in the lab: libddl beside other libraries in a shaped cluster of network namespaces.

    python tests/bench/bench_lab.py
    python tests/bench/bench_lab.py --layouts racks-2x4 flat-8 --orders random:1 --peers ddl gloo
    python tests/bench/bench_lab.py --quick

Needs root, else it says so and does nothing. A layout is one of the default ones or of its like
(racks-3x2x2, ragged-1+2+3, flat-5, drawn-7); an order is sorted, interleaved or random:SEED.
Repetitions take turns over the libraries. Prints a line for each run, then the table, and writes
both as JSON; ends with 1 and names each row of libddl that falls short of `lab/bar.py`. --quick
runs libddl alone, in a minute or two, and asks less of the time.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import asdict
from itertools import product
from pathlib import Path

from rich.console import Console

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.command import end, parse_size, run_command, write_report
from bench.lab.bar import shortfalls
from bench.lab.bound import lower_bound
from bench.lab.cell import Budget, Cell, measure
from bench.lab.layout import SHAPES, Layout, parse_layout, rank_order
from bench.lab.network import bring_up, why_not
from bench.lab.peers import every_peer
from bench.lab.peers.base import Peer, Unavailable
from bench.lab.report import cell_text, failures, make_table

HERE = Path(__file__).parent
DRAWN = ("drawn-1", "drawn-2")
QUICK = {
    "racks-2x4": "interleaved",
    "racks-2x2x2": "random:1",
    "ragged-3+1": "sorted",
    "slow-host": "sorted",
}


def parse_options() -> argparse.Namespace:
    """The command line."""
    ask = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    ask.add_argument("--layouts", nargs="+", default=[*SHAPES, *DRAWN], help="default: all ten")
    ask.add_argument("--orders", nargs="+", help="default: sorted interleaved random:1, or sorted")
    ask.add_argument("--sizes", nargs="+", type=parse_size, help="default: 4M or 8M")
    ask.add_argument("--peers", nargs="+", help="default: all; ddl is libddl as installed")
    ask.add_argument("--repetitions", type=int, default=1)
    ask.add_argument("--iterations", type=int, default=7, help="calls in a run")
    ask.add_argument("--seconds", type=float, default=15, help="begin no further call after these")
    ask.add_argument("--limit", type=float, default=60, help="kill a run after these seconds")
    ask.add_argument("--host-mbit", type=float, default=250, help="rate of a host's link")
    ask.add_argument("--uplink-mbit", type=float, default=50, help="rate of a rack's uplink")
    ask.add_argument("--ddl-prefix", type=Path, help="where libddl is; default: the built env")
    ask.add_argument("--mpi-prefix", type=Path, help="the MPICH under it; default: the same")
    ask.add_argument("--quick", action="store_true", help="libddl alone, with limits")
    ask.add_argument("--out", type=Path, help="the JSON")
    return ask.parse_args()


def orders_of(layout: Layout) -> list[str]:
    """The orders by default: one, where all ranks are alike."""
    alike = len(layout.racks) == 1 and layout.ranks_per_host == 1
    return ["sorted"] if alike else ["sorted", "interleaved", "random:1"]


def size_of(layout: Layout) -> int:
    """The size by default: a lower bound near 0.7 s is long enough to be stable."""
    return min((4 << 20, 8 << 20, 16 << 20), key=lambda size: abs(lower_bound(layout, size) - 0.7))


def prepare(peers: list[Peer]) -> dict[str, str]:
    """Installs and compiles; returns why the ones that cannot run cannot."""
    missing = {}
    for peer in peers:
        try:
            peer.prepare()
        except Unavailable as error:
            missing[peer.name] = f"unavailable: {error}"
    return missing


def run_layout(
    layout: Layout,
    order: str | None,
    peers: list[Peer],
    missing: dict[str, str],
    ask: argparse.Namespace,
) -> Iterator[Cell]:
    """All cells of a layout; of one order, if it is given."""
    orders = [order] if order else ask.orders or orders_of(layout)
    sizes = ask.sizes or [size_of(layout)]
    budget = Budget(ask.iterations, ask.seconds, ask.limit)
    for order, nbytes, _ in product(orders, sizes, range(ask.repetitions)):
        for peer in peers:
            if why := missing.get(peer.name):
                bound = lower_bound(layout, nbytes)
                yield Cell(layout.name, order, nbytes, peer.name, bound, failure=why)
                continue
            with bring_up(layout) as lab:  # in between, others on this machine have their turn
                cell = measure(lab, order, nbytes, peer, budget)
            yield cell


def show_and_write(cells: list[Cell], ask: argparse.Namespace) -> None:
    """The table, why there are gaps in it, and the JSON."""
    Console(width=110).print(make_table(cells))
    for line in failures(cells):
        print(line)
    out = ask.out or HERE / "out" / ("lab-quick.json" if ask.quick else "lab.json")
    write_report(out, ask, cells=[asdict(cell) for cell in cells])


def main() -> None:
    """Run the cells, print the table, write the JSON; also of a run that is interrupted."""
    ask = parse_options()
    if why := why_not():
        print(f"skipped: {why}")
        return
    every = every_peer(ask.ddl_prefix, ask.mpi_prefix)
    names = ask.peers or (["ddl"] if ask.quick else list(every))
    if unknown := [name for name in names if name not in every]:
        raise ValueError(f"library {unknown[0]}: not one of {', '.join(every)}")
    plan = dict(QUICK) if ask.quick else dict.fromkeys(ask.layouts)
    layouts = {name: parse_layout(name, ask.host_mbit, ask.uplink_mbit) for name in plan}
    for layout, order in product(layouts.values(), ask.orders or []):
        rank_order(layout, order)  # a wrong name is said before the first run
    peers = [every[name] for name in names]
    missing = prepare(peers)
    cells: list[Cell] = []
    try:
        for name, order in plan.items():
            for cell in run_layout(layouts[name], order, peers, missing, ask):
                print(cell_text(cell), flush=True)
                cells.append(cell)
    finally:
        if cells:
            show_and_write(cells, ask)
    end(shortfalls(cells, quick=ask.quick))


if __name__ == "__main__":
    run_command(main)
