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
from dataclasses import replace
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.check import Check, missed
from bench.collectives import add_options, bound_check, layouts_of, measure_all, ours
from bench.command import asker, end, parse_size, run_command
from bench.environment import environment_with
from bench.lab.bound import bound_of, exchange_bound
from bench.lab.cell import Budget, Cell, outcome_of
from bench.lab.layout import Layout, rank_order
from bench.lab.network import Lab, why_not
from bench.lab.report import where_text
from bench.lab.skewed import weights
from bench.lab.training import PORT, STARTS, TORCH_ENV

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
    add_options(ask, [*NAMES, SKEWED], BY, OUT)
    ask.set_defaults(by=list(BY))
    ask.add_argument("--exchanged", type=parse_size, default=1 << 20, help="in all-to-alls; 1M")
    ask.add_argument("--prefix", type=Path, help="where torch is; default: the built environment")
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
    started = replace(started, env=TORCH_ENV | started.env)
    least = bound(collective, lab.layout, order, nbytes)
    cell = Cell(lab.layout.name, order, nbytes, f"{collective} by {by}", least)
    return outcome_of(lab, cell, hosts, started, Budget(limit=ask.limit))


def checks(cells: list[Cell]) -> list[Check]:
    """What the bar demands of ddl's."""
    found = []
    times = {
        (cell.layout, cell.order, cell.peer): statistics.median(cell.times)
        for cell in cells
        if cell.times
    }
    for cell in ours(cells):
        found.append(bound_check(ROW, cell, BAR))
        gloo = times.get((cell.layout, cell.order, cell.peer.replace(" by ddl", " by gloo")))
        if cell.times and gloo:
            ratio = gloo / statistics.median(cell.times)
            check = Check(ROW, where_text(cell), "Gloo takes {} x as long", ratio, 1.0)
            at_bound = "Gloo is at the bound itself"
            found.append(replace(check, reachable=gloo / cell.bound, reason=at_bound))
    return found


def main() -> None:
    """Run the cells, print the table, write the JSON; also of a run that is interrupted."""
    ask = parse_options()
    if why := why_not():
        print(f"skipped: {why}")
        return
    prefix = environment_with("mpiexec", ask.prefix)
    # The order of ranks is nothing on a flat network.
    places = [
        (layout, order)
        for layout in layouts_of(ask)
        for order in (ask.orders if len(layout.racks) > 1 else ask.orders[:1])
    ]
    cells = measure_all(places, ask, partial(run, prefix=prefix, ask=ask))
    end(missed(checks(cells)))


if __name__ == "__main__":
    run_command(main)
