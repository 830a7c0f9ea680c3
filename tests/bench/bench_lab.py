"""Allreduce in the lab: libddl beside other libraries in a shaped cluster of network namespaces.

    python tests/bench/bench_lab.py
    python tests/bench/bench_lab.py --layouts racks-2x4 flat-8 --orders random:1 --peers ddl gloo
    python tests/bench/bench_lab.py --all
    python tests/bench/bench_lab.py --quick

Needs root, else it says so and does nothing. A layout is one of the default ones or of its like
(racks-3x2x2, ragged-1+2+3, flat-5, drawn-7); an order is sorted, interleaved or random:SEED.

By default it takes half an hour: each layout of the bar in the orders that it names, one layout
drawn at random, and the libraries that have been the best of the others somewhere, with three
timed calls each. --all takes many hours: all libraries, five orders of every layout, three drawn
layouts, and three repetitions, which take turns over the libraries. --quick is what continuous
integration runs, two minutes: libddl alone and with wider limits; a run that is too slow gets two
more chances, since other load of the machine can only make it slower.

Prints a line for each run, then the table, and writes both as JSON; ends with 1 and names each row
of libddl that falls short of `lab/bar.py`. The row `ddl`, libddl without a topology, is not judged.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
from collections.abc import Iterator
from dataclasses import asdict
from itertools import product
from pathlib import Path

from rich.console import Console

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.check import missed
from bench.command import asker, end, parse_size, run_command, write_report
from bench.lab.bar import JUDGED, checks
from bench.lab.bound import lower_bound
from bench.lab.cell import Budget, Cell, measure
from bench.lab.layout import Layout, parse_layout, rank_order
from bench.lab.network import bring_up, why_not
from bench.lab.peers.base import Peer
from bench.lab.peers.choice import add_prefixes, chosen_peers, prepare
from bench.lab.plan import EXTENTS, cells_of, size_of
from bench.lab.report import cell_text, failures, make_table

HERE = Path(__file__).parent
CHANCES = 3
"""Runs of a cell of --quick at most."""


def parse_options() -> argparse.Namespace:
    """The command line; what it does not say is as the extent has it."""
    ask = asker(__doc__)
    ask.add_argument("--layouts", nargs="+", default=[], help="default: of the bar")
    ask.add_argument("--orders", nargs="+", default=[], help="default: of the bar")
    ask.add_argument("--sizes", nargs="+", type=parse_size, help="default: 4M or 8M")
    ask.add_argument("--peers", nargs="+", help="default: ours, and the best of the others")
    ask.add_argument("--drawn", type=int, help="layouts drawn at random; default: 1, or 3")
    ask.add_argument("--seed", type=int, help="of the drawn layouts; default: another each time")
    ask.add_argument("--repetitions", type=int, help="default: 1, or 3")
    ask.add_argument("--iterations", type=int, default=7, help="calls in a run of ours")
    ask.add_argument("--peer-iterations", type=int, help="of the others; default: 3, or 7")
    ask.add_argument("--seconds", type=float, default=15, help="begin no further call after these")
    ask.add_argument("--limit", type=float, default=60, help="kill a run after these seconds")
    ask.add_argument("--host-mbit", type=float, default=250, help="rate of a host's link")
    ask.add_argument("--uplink-mbit", type=float, default=50, help="rate of a rack's uplink")
    add_prefixes(ask)
    how = ask.add_mutually_exclusive_group()
    how.add_argument("--all", dest="extent", action="store_const", const="all", help="hours")
    how.add_argument("--quick", dest="extent", action="store_const", const="quick", help="minutes")
    ask.add_argument("--out", type=Path, help="the JSON")
    asked = ask.parse_args()
    asked.extent = asked.extent or "daily"
    extent = EXTENTS[asked.extent]
    asked.peers = asked.peers or list(extent.peers)
    asked.repetitions = asked.repetitions or extent.repetitions
    asked.peer_iterations = asked.peer_iterations or extent.iterations
    if asked.drawn is None:
        asked.drawn = 0 if asked.layouts else extent.drawn
    if asked.seed is None:
        asked.seed = random.SystemRandom().randrange(10**6)
    return asked


def run_cells(
    layout: Layout, order: str, peers: list[Peer], missing: dict[str, str], ask: argparse.Namespace
) -> Iterator[Cell]:
    """All cells of a layout and an order."""
    for nbytes, _ in product(ask.sizes or [size_of(layout)], range(ask.repetitions)):
        for peer in peers:
            if why := missing.get(peer.name):
                bound = lower_bound(layout, nbytes)
                yield Cell(layout.name, order, nbytes, peer.name, bound, failure=why)
            elif ask.extent == "quick":
                yield run_steadily(layout, order, nbytes, peer, ask)
            else:
                yield run_once(layout, order, nbytes, peer, ask)


def run_once(layout: Layout, order: str, nbytes: int, peer: Peer, ask: argparse.Namespace) -> Cell:
    """One run, in a lab of its own: in between, others on this machine have their turn."""
    calls = ask.iterations if peer.name in JUDGED else ask.peer_iterations
    with bring_up(layout) as lab:
        return measure(lab, order, nbytes, peer, Budget(calls, ask.seconds, ask.limit))


def run_steadily(
    layout: Layout, order: str, nbytes: int, peer: Peer, ask: argparse.Namespace
) -> Cell:
    """A run that is fast enough, or else the fastest of some, or the first that is wrong."""
    found: list[Cell] = []
    for _ in range(CHANCES):
        cell = run_once(layout, order, nbytes, peer, ask)
        found.append(cell)
        short = [check for check in checks([cell], quick=True) if not check.met]
        if not short or any("lower bound" not in check.what for check in short):
            return cell
        print(f"{cell_text(cell)}; once more", flush=True)
    return min(found, key=lambda cell: statistics.median(cell.times))


def show_and_write(cells: list[Cell], ask: argparse.Namespace) -> None:
    """The table, why there are gaps in it, and the JSON."""
    Console(width=110).print(make_table(cells))
    for line in failures(cells):
        print(line)
    out = ask.out or HERE / "out" / ("lab-quick.json" if ask.extent == "quick" else "lab.json")
    write_report(out, ask, cells=[asdict(cell) for cell in cells])


def main() -> None:
    """Run the cells, print the table, write the JSON; also of a run that is interrupted."""
    ask = parse_options()
    if why := why_not():
        print(f"skipped: {why}")
        return
    peers = chosen_peers(ask)
    rates = ask.host_mbit, ask.uplink_mbit
    drawn = [parse_layout(f"drawn-{ask.seed + n}", *rates) for n in range(ask.drawn)]
    for layout in drawn:
        racks = "+".join(map(str, layout.racks))
        slow = "".join(f", h{host} at {mbit:g} Mbit/s" for host, mbit in layout.slow.items())
        print(f"{layout.name}: racks of {racks}, {layout.ranks_per_host} ranks a host{slow}")
    given = [parse_layout(name, *rates) for name in ask.layouts]
    plan = list(cells_of(ask.extent, given, drawn, ask.orders))
    for name, order in plan:
        rank_order(parse_layout(name, *rates), order)  # a wrong name is said before the first run
    missing = prepare(peers)
    cells: list[Cell] = []
    try:
        for name, order in plan:
            for cell in run_cells(parse_layout(name, *rates), order, peers, missing, ask):
                print(cell_text(cell), flush=True)
                cells.append(cell)
    finally:
        if cells:
            show_and_write(cells, ask)
    end(missed(checks(cells, quick=ask.extent == "quick")))


if __name__ == "__main__":
    run_command(main)
