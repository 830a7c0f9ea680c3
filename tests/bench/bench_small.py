"""Small allreduces between hosts: libddl beside three MPI libraries and Gloo, one rank a host.

    python tests/bench/bench_small.py
    python tests/bench/bench_small.py --layouts flat-8 --sizes 4 4K --peers ddl intelmpi

Needs root, else it says so and does nothing. The hosts are network namespaces at 250 Mbit/s each,
side by side (bench_lab.py has the racks). The libraries take turns, so that other load of the
machine meets all of them. Prints a line for each run, then a table with the medians and the 99th
percentiles of all calls, and writes both as JSON; ends with 1 and names each size at which libddl
takes longer than the best MPI.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from dataclasses import asdict
from itertools import product
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.check import Check, missed
from bench.command import asker, end, parse_size, run_command, write_report
from bench.lab.cell import Budget, Cell, measure
from bench.lab.layout import parse_layout
from bench.lab.network import bring_up, why_not
from bench.lab.peers.choice import add_prefixes, chosen_peers, prepare
from bench.lab.report import failures, percentile, sections, size_text, where_text

HERE = Path(__file__).parent
OURS = "ddl"
ROW = "Small messages between hosts, 4 B to 64 KiB"
SIZES = [4, 256, 1 << 10, 4 << 10, 8 << 10, 64 << 10]


def parse_options() -> argparse.Namespace:
    """The command line."""
    ask = asker(__doc__)
    ask.add_argument("--layouts", nargs="+", default=["flat-2", "flat-4", "flat-8"])
    ask.add_argument("--sizes", nargs="+", type=parse_size, default=SIZES)
    ask.add_argument("--peers", nargs="+", default=[OURS, "mpich", "openmpi", "intelmpi", "gloo"])
    ask.add_argument("--repetitions", type=int, default=3, help="runs of a cell; default: 3")
    ask.add_argument("--iterations", type=int, default=101, help="calls in a run; default: 101")
    ask.add_argument("--limit", type=float, default=60, help="kill a run after these seconds")
    ask.add_argument("--host-mbit", type=float, default=250, help="rate of a host's link")
    add_prefixes(ask)
    ask.add_argument("--out", type=Path, default=HERE / "out" / "small.json", help="the JSON")
    return ask.parse_args()


def figures(cells: list[Cell]) -> dict[str, float]:
    """Seconds over all calls of the same cell's repetitions; empty when none succeeded."""
    times = [time for cell in cells for time in cell.times]
    if not times:
        return {}
    return {"median": statistics.median(times), "99th percentile": percentile(times, 0.99)}


def checks(cells: list[Cell]) -> list[Check]:
    """libddl's median and 99th percentile by those of the best MPI, at each size."""
    found = []
    for rows in sections(cells):
        ours = rows.get(OURS, [])
        mpi = [figures(same) for name, same in rows.items() if "mpi" in name]
        mpi = [reached for reached in mpi if reached]
        if not ours or not mpi:
            continue
        where = where_text(ours[0])
        if not figures(ours):
            found.append(Check(ROW, where, failure=ours[0].failure))
        for what, seconds in figures(ours).items():
            text, least = f"{{}} x the {what} of the best MPI", min(each[what] for each in mpi)
            found.append(Check(ROW, where, text, seconds / least, 1.0, at_most=True))
    return found


def make_table(cells: list[Cell]) -> Table:
    """A row for each layout and size: milliseconds, as median / 99th percentile."""
    names = list(dict.fromkeys(cell.peer for cell in cells))
    table = Table("hosts", "size", *names, "by the best MPI")
    for rows in sections(cells):
        first = next(iter(rows.values()))[0]
        shown = []
        for name in names:
            both = figures(rows.get(name, [])).values()
            shown.append(" / ".join(f"{1e3 * seconds:.3f}" for seconds in both) or "-")
        ratios = [f"{check.reached:.2f}" for check in checks([c for s in rows.values() for c in s])]
        table.add_row(first.layout, size_text(first.nbytes), *shown, " / ".join(ratios))
    return table


def main() -> None:
    """Run the cells, print the table, write the JSON; also of a run that is interrupted."""
    ask = parse_options()
    if why := why_not():
        print(f"skipped: {why}")
        return
    peers = chosen_peers(ask)
    layouts = [parse_layout(name, ask.host_mbit, ask.host_mbit) for name in ask.layouts]
    missing = prepare(peers)
    budget = Budget(ask.iterations, limit=ask.limit)
    cells: list[Cell] = []
    try:
        runs = product(layouts, ask.sizes, range(ask.repetitions), peers)
        for layout, nbytes, _, peer in runs:
            if reason := missing.get(peer.name):
                cells.append(Cell(layout.name, "sorted", nbytes, peer.name, 0, failure=reason))
                continue
            with bring_up(layout) as lab:
                cells.append(measure(lab, "sorted", nbytes, peer, budget))
            times = cells[-1].times
            told = f"{1e3 * statistics.median(times):.3f} ms" if times else cells[-1].failure
            print(f"{where_text(cells[-1])}: {told}", flush=True)
    finally:
        if cells:
            Console(width=130).print(make_table(cells))
            for line in failures(cells):
                print(line)
            write_report(ask.out, ask, cells=[asdict(cell) for cell in cells])
    end(missed(checks(cells)))


if __name__ == "__main__":
    run_command(main)
