"""torch.distributed's collectives in the lab: by ddl, beside Gloo and what the network allows.

    python tests/bench/bench_collectives.py
    python tests/bench/bench_collectives.py --layouts flat-8 --collectives broadcast --by ddl

Needs root, else it says so and does nothing. A layout and an order are as in bench_lab.py, one rank
to a host; ddl knows the racks from a topology file. `all_reduce` and `broadcast` are of 4 MiB,
`all_gather` gives each rank that much, `reduce_scatter` takes it, and in `all_to_all` each rank has
1 MiB for all. In `skewed` two ranks get eight times as much of it as each other one. The bound of a
cut is what must cross it in one direction. Prints a line for each run, then the table, and writes
both as JSON; ends with 1 and names each collective by ddl that takes more than 1.10 times the
bound, or longer than by Gloo.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path

from rich.console import Console

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.check import Check, missed
from bench.command import asker, end, parse_size, run_command, write_report
from bench.environment import environment_with
from bench.lab.bound import bound_of, exchange_bound
from bench.lab.cell import Budget, Cell, outcome_of
from bench.lab.layout import Layout, parse_layout, rank_order
from bench.lab.network import Lab, bring_up, why_not
from bench.lab.peers.base import DEVICE
from bench.lab.report import cell_text, make_table, where_text
from bench.lab.skewed import weights
from bench.lab.training import PORT, STARTS

HERE = Path(__file__).parent
OUT = HERE / "out" / "collectives.json"
WORKER = HERE / "lab" / "workers" / "collective_torch.py"
ROW = "Collectives of torch.distributed in the lab, 8 hosts"
BAR = 1.10
BY = ("ddl", "gloo")
NAMES = {
    "all_reduce": "psum",
    "all_gather": "all_gather",
    "reduce_scatter": "psum_scatter",
    "all_to_all": "all_to_all",
    "broadcast": "broadcast",
}
"""torch's names, and those that the bounds go by."""
SKEWED = "skewed"


def parse_options() -> argparse.Namespace:
    """The command line."""
    ask = asker(__doc__)
    ask.add_argument("--layouts", nargs="+", default=["racks-2x4", "flat-8"])
    ask.add_argument("--orders", nargs="+", default=["sorted", "interleaved"])
    every = [*NAMES, SKEWED]
    ask.add_argument("--collectives", nargs="+", choices=every, default=every)
    ask.add_argument("--by", nargs="+", choices=BY, default=list(BY), help="default: both")
    ask.add_argument("--size", type=parse_size, default=4 << 20, help="default: 4M")
    ask.add_argument("--exchanged", type=parse_size, default=1 << 20, help="in all-to-alls; 1M")
    ask.add_argument("--iterations", type=int, default=7, help="calls in a run")
    ask.add_argument("--seconds", type=float, default=20, help="begin no further call after these")
    ask.add_argument("--limit", type=float, default=240, help="kill a run after these seconds")
    ask.add_argument("--host-mbit", type=float, default=250, help="rate of a host's link")
    ask.add_argument("--uplink-mbit", type=float, default=50, help="rate of a rack's uplink")
    ask.add_argument("--prefix", type=Path, help="where torch is; default: the built environment")
    ask.add_argument("--out", type=Path, default=OUT, help="the JSON")
    return ask.parse_args()


def bound(collective: str, layout: Layout, order: str, nbytes: int) -> float:
    """The seconds that it takes at least."""
    if collective != SKEWED:
        return bound_of(NAMES[collective], layout, nbytes)
    by_rank = weights(layout.ranks)
    row = [nbytes * weight / sum(by_rank) for weight in by_rank]
    return exchange_bound(layout, order, [row] * layout.ranks)


def run(
    lab: Lab, order: str, collective: str, by: str, prefix: Path, ask: argparse.Namespace
) -> Cell:
    """One collective once; a failure is an outcome, not an error."""
    nbytes = ask.exchanged if collective in ("all_to_all", SKEWED) else ask.size
    hosts = [f"h{host}" for host in rank_order(lab.layout, order)]
    words = [str(prefix / "bin" / "python"), str(WORKER), by, collective, str(nbytes)]
    words += [str(ask.iterations), str(ask.seconds), str(lab.counters), str(lab.folder)]
    words += [f"tcp://{lab.address(hosts[0])}:{PORT}"]
    started = STARTS[by](lab, prefix, hosts, words)
    env = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": DEVICE}
    least = bound(collective, lab.layout, order, nbytes)
    cell = Cell(lab.layout.name, order, nbytes, f"{collective} by {by}", least)
    return outcome_of(
        lab, cell, hosts, replace(started, env=env | started.env), Budget(limit=ask.limit)
    )


def checks(cells: list[Cell]) -> list[Check]:
    """What the bar demands of ddl's."""
    found = []
    gloo = {
        (cell.layout, cell.order, cell.peer.partition(" ")[0]): statistics.median(cell.times)
        for cell in cells
        if cell.peer.endswith(" by gloo") and cell.times
    }
    for cell in [cell for cell in cells if cell.peer.endswith(" by ddl")]:
        where = where_text(cell)
        if cell.failure:
            found.append(Check(ROW, where, failure=cell.failure))
            continue
        middle = statistics.median(cell.times)
        what = "{} x the lower bound"
        found.append(Check(ROW, where, what, middle / cell.bound, BAR, at_most=True))
        if peer := gloo.get((cell.layout, cell.order, cell.peer.partition(" ")[0])):
            reachable, reason = peer / cell.bound, "Gloo is at the bound itself"
            what = "Gloo takes {} x as long"
            found.append(Check(ROW, where, what, peer / middle, 1.0, False, "", reachable, reason))
    return found


def main() -> None:
    """Run the cells, print the table, write the JSON; also of a run that is interrupted."""
    ask = parse_options()
    if why := why_not():
        print(f"skipped: {why}")
        return
    prefix = environment_with("mpiexec", ask.prefix)
    rates = ask.host_mbit, ask.uplink_mbit
    layouts = [parse_layout(name, *rates) for name in ask.layouts]
    cells: list[Cell] = []
    try:
        for layout, order, collective, by in product(layouts, ask.orders, ask.collectives, ask.by):
            if len(layout.racks) == 1 and order != ask.orders[0]:
                continue  # the order of ranks is nothing on a flat network
            with bring_up(layout) as lab:
                cells.append(run(lab, order, collective, by, prefix, ask))
            print(cell_text(cells[-1]), flush=True)
    finally:
        if cells:
            Console(width=110).print(make_table(cells))
            write_report(ask.out, ask, cells=[asdict(cell) for cell in cells])
    end(missed(checks(cells)))


if __name__ == "__main__":
    run_command(main)
