"""Training in the lab: steps of DistributedDataParallel, FSDP2 and Horovod, on ddl and its peers.

    python tests/bench/bench_ddp.py
    python tests/bench/bench_ddp.py --layouts racks-2x4 --orders interleaved --repetitions 1

Needs root, else it says so and does nothing. The model is all communication: its gradients are
4 MiB, its data two rows a rank. A layout and an order are as in bench_lab.py, one rank to a host;
ddl knows the racks from a topology file. Repetitions take turns over the backends. Prints a line
for each run, then the table, and writes both as JSON; ends with 1 and names each row that falls
short: DistributedDataParallel on ddl must be 1.35 times as fast as on gloo with sorted ranks and 4
times with interleaved ones; FSDP2 1.5 and 4 times; HSDP, which shards over four ranks and has a
replica on the next four, as fast; Horovod on DDL as fast as on the best of MPI and Gloo, and twice
as fast; and their losses after the same steps must agree. --backends chooses some.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.check import Check, missed
from bench.command import asker, end, parse_size, run_command, write_report
from bench.environment import environment_with
from bench.lab.bound import lower_bound
from bench.lab.cell import Budget
from bench.lab.layout import Layout, parse_layout, rank_order
from bench.lab.network import bring_up, why_not
from bench.lab.report import size_text
from bench.lab.training import Training, train

HERE = Path(__file__).parent
PEERS = {
    "ddl": ("gloo",),
    "fsdp-ddl": ("fsdp-gloo",),
    "hsdp-ddl": ("hsdp-gloo",),
    "horovod-ddl": ("horovod-mpi", "horovod-gloo"),
}
"""Whom each of ours is measured against: the same framework on other libraries."""
BACKENDS = [name for ours, peers in PEERS.items() for name in (ours, *peers)]
BAR = {
    "ddl": {"sorted": 1.35, "interleaved": 4.0},
    "fsdp-ddl": {"sorted": 1.5, "interleaved": 4.0},
    "hsdp-ddl": {"sorted": 1.0, "interleaved": 1.0},
    "horovod-ddl": {"sorted": 1.0, "interleaved": 2.0},
}
"""How many times faster than the best peer ours must be, by order, where racks share an uplink."""
ROW = "DDP on ddl vs gloo in the lab, comm-bound model"
HOROVOD = "Horovod on ddl vs MPI and Gloo in the lab"
FSDP = "FSDP2 on ddl vs gloo in the lab, comm-bound model"
HSDP = "HSDP on ddl vs gloo in the lab, 4 shards x 2 replicas"
ROW_OF = {"ddl": ROW, "fsdp-ddl": FSDP, "hsdp-ddl": HSDP, "horovod-ddl": HOROVOD}


def parse_options() -> argparse.Namespace:
    """The command line."""
    ask = asker(__doc__)
    ask.add_argument("--layouts", nargs="+", default=["racks-2x4"], help="default: racks-2x4")
    ask.add_argument("--orders", nargs="+", default=list(BAR["ddl"]), help="default: of the bar")
    ask.add_argument("--backends", nargs="+", choices=BACKENDS, default=BACKENDS)
    ask.add_argument("--size", type=parse_size, default=4 << 20, help="of the gradients; 4M")
    ask.add_argument("--repetitions", type=int, default=2)
    ask.add_argument("--iterations", type=int, default=7, help="steps in a run")
    ask.add_argument("--seconds", type=float, default=20, help="begin no further step after these")
    ask.add_argument("--limit", type=float, default=240, help="kill a run after these seconds")
    ask.add_argument("--host-mbit", type=float, default=250, help="rate of a host's link")
    ask.add_argument("--uplink-mbit", type=float, default=50, help="rate of a rack's uplink")
    ask.add_argument("--prefix", type=Path, help="where torch is; default: the built environment")
    ask.add_argument("--out", type=Path, help="the JSON")
    return ask.parse_args()


Rows = dict[tuple[str, str], dict[str, list[Training]]]


def rows_of(runs: list[Training]) -> Rows:
    """The runs by layout and order, in each by backend."""
    found: Rows = {}
    for run in runs:
        found.setdefault((run.layout, run.order), {}).setdefault(run.backend, []).append(run)
    return found


def median(runs: list[Training]) -> float:
    """The median over all steps of the repetitions; NaN without any."""
    times = [time for run in runs for time in run.times]
    return statistics.median(times) if times else math.nan


def gain(backends: dict[str, list[Training]], ours: str) -> float:
    """How many times faster ours is than its best peer; NaN where one of them did not run."""
    peers = [median(backends[peer]) for peer in PEERS[ours] if backends.get(peer)]
    best = math.nan if any(math.isnan(peer) for peer in peers) else min(peers, default=math.nan)
    return best / median(backends.get(ours, []))


def checks(runs: list[Training], layouts: dict[str, Layout]) -> list[Check]:
    """Everything that is reached, and what has to be."""
    found = [Check(ROW, where(run), failure=run.failure) for run in runs if run.failure]
    for (name, order), backends in rows_of(runs).items():
        layout, place = layouts[name], f"{name} {order}"
        for ours in [each for each in PEERS if each in backends and len(layout.racks) > 1]:
            bar, reached = BAR[ours].get(order), gain(backends, ours)
            if not bar:
                continue
            nbytes, peers = backends[ours][0].nbytes, " and ".join(PEERS[ours])
            most = reached * median(backends[ours]) / lower_bound(layout, nbytes)
            reason = f"{peers} at best takes {most:.2f} x the bound of a step's allreduce"
            what = f"{peers} at best takes {{}} x as long as {ours}"
            check = Check(ROW_OF[ours], place, what, reached, bar, reachable=most, reason=reason)
            found.append(replace(check, reachable=None) if math.isnan(most) else check)
        losses = [run.loss for same in backends.values() for run in same if run.times]
        # The same steps on the same data: backends may round sums otherwise, no more.
        if losses and max(losses) - min(losses) > 1e-4 * max(losses):
            differ = f"the losses differ: {min(losses)} to {max(losses)}"
            found.append(Check(ROW, place, failure=differ))
    return found


def where(run: Training) -> str:
    """Which run it is."""
    return f"{run.layout} {run.order} {size_text(run.nbytes)} {run.backend}"


def run_text(run: Training) -> str:
    """A run in a line, while they go on."""
    if run.failure:
        return f"{where(run)}: {run.failure}"
    return f"{where(run)}: {1e3 * median([run]):.0f} ms, uplink {run.uplink:.2f} x"


def make_table(runs: list[Training]) -> Table:
    """A section for each layout and order, a row for each backend."""
    table = Table("backend", "median ms", "min", "max", "steps", "uplink", "cores", "gain")
    for column in table.columns[1:]:
        column.justify = "right"
    for (layout, order), backends in rows_of(runs).items():
        size = size_text(next(iter(backends.values()))[0].nbytes)
        table.add_row(f"[bold]{layout}, {order}, {size}[/]")
        for backend, same in backends.items():
            times = [1e3 * time for run in same for time in run.times]
            if not times:
                table.add_row(backend, "failed")
                continue
            figures = [f"{x:.0f}" for x in (statistics.median(times), min(times), max(times))]
            uplink = f"{statistics.median(run.uplink for run in same if run.times):.2f}"
            cores = f"{statistics.median(run.cores for run in same if run.times):.2f}"
            ratio = f"{gain(backends, backend):.2f}" if backend in PEERS else ""
            table.add_row(backend, *figures, str(len(times)), uplink, cores, ratio)
        table.add_section()
    return table


def run_all(layouts: dict[str, Layout], ask: argparse.Namespace) -> Iterator[Training]:
    """All runs; repetitions take turns."""
    prefix = environment_with("python", ask.prefix).resolve()
    budget = Budget(ask.iterations, ask.seconds, ask.limit)
    for layout, order in product(layouts.values(), ask.orders):
        for _, backend in product(range(ask.repetitions), ask.backends):
            with bring_up(layout) as lab:  # in between, others on this machine have their turn
                run = train(lab, order, ask.size, backend, prefix, budget)
            yield run


def show_and_write(runs: list[Training], ask: argparse.Namespace) -> None:
    """The table and the JSON."""
    Console(width=110).print(make_table(runs))
    out = ask.out or HERE / "out" / "ddp.json"
    gains = {
        " ".join([*key, ours]): gain(backends, ours)
        for key, backends in rows_of(runs).items()
        for ours in PEERS
        if ours in backends
    }
    write_report(out, ask, gains=gains, runs=[asdict(run) for run in runs])


def main() -> None:
    """Train, print the table, write the JSON; also of a run that is interrupted."""
    ask = parse_options()
    if why := why_not():
        print(f"skipped: {why}")
        return
    layouts = {name: parse_layout(name, ask.host_mbit, ask.uplink_mbit) for name in ask.layouts}
    for layout, order in product(layouts.values(), ask.orders):
        rank_order(layout, order)  # a wrong name is said before the first run
    runs: list[Training] = []
    try:
        for run in run_all(layouts, ask):
            print(run_text(run), flush=True)
            runs.append(run)
    finally:
        if runs:
            show_and_write(runs, ask)
    end(missed(checks(runs, layouts)))


if __name__ == "__main__":
    run_command(main)
