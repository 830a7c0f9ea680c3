"""The simulator beside the lab: predicted and measured times of libddl's allreduce.

    python tests/bench/bench_sim.py
    python tests/bench/bench_sim.py --layouts flat-8 --sizes 4K 64K --schedules direct halving

Runs libddl in the lab of `tests/bench/lab` (needs root, else it says so and does nothing), tells it
the topology, and asks `ddl-sim` of the same prefix for the same cluster, size and schedule. Prints
predicted, measured and error, and writes them as JSON; ends with 1 where a prediction is off by
more than --most-error. Below 1 MiB the lab's shapers let a call be faster than the rates, so
there only the order of the schedules is of interest: --most-error 0 asks nothing.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.command import asker, parse_size, run_command, write_report
from bench.environment import built
from bench.lab.bound import GOODPUT
from bench.lab.cell import Budget, measure
from bench.lab.layout import Layout, parse_layout, topology_yaml
from bench.lab.network import bring_up, why_not
from bench.lab.peers.ddl import Ddl
from bench.lab.report import percentile, size_text

HERE = Path(__file__).parent
CELLS = (
    ("racks-2x4", "sorted"),
    ("racks-2x4", "interleaved"),
    ("racks-2x3", "interleaved"),
    ("ragged-3+1", "sorted"),
    ("racks-2x2x2", "interleaved"),
    ("flat-8", "sorted"),
    ("slow-host", "sorted"),
)
"""The layouts and orders by default."""
LAB = {"goodput": GOODPUT / 1.015, "overhead": 75}
"""What of the lab the topology file does not say, as options of ddl-sim: the other direction's
acknowledgements take 1.5% (by the uplinks' counters), and where four ranks share a processor, a
message costs 75 us (from allreduces of 4 KiB in one step and in three)."""


@dataclass(frozen=True)
class Row:
    """One prediction and what became of it; times in seconds."""

    layout: str
    order: str
    nbytes: int
    schedule: str
    chosen: str
    bound: float
    predicted: float
    measured: float = 0
    least: float = 0
    p95: float = 0
    failure: str = ""

    @property
    def error(self) -> float | None:
        """Of the prediction, by what was measured."""
        return self.predicted / self.measured - 1 if self.measured else None


def parse_options() -> argparse.Namespace:
    """The command line."""
    ask = asker(__doc__)
    ask.add_argument("--layouts", nargs="+", help="default: seven layouts and orders")
    ask.add_argument("--orders", nargs="+", default=["sorted"], help="of --layouts")
    ask.add_argument("--sizes", nargs="+", type=parse_size, default=[1 << 20, 4 << 20])
    ask.add_argument("--schedules", nargs="+", default=["auto"])
    ask.add_argument("--repetitions", type=int, default=3)
    ask.add_argument("--iterations", type=int, default=7, help="calls in a run")
    ask.add_argument("--host-mbit", type=float, default=250)
    ask.add_argument("--uplink-mbit", type=float, default=50)
    ask.add_argument("--ddl-prefix", type=Path, help="where libddl is; default: the built env")
    ask.add_argument("--mpi-prefix", type=Path, help="the MPICH under it; default: the same")
    ask.add_argument("--most-error", type=float, default=0.1, help="0: any; default: 0.1")
    ask.add_argument("--out", type=Path, help="the JSON")
    return ask.parse_args()


def predict(prefix: Path, layout: Layout, nbytes: int, schedule: str) -> tuple[str, float, float]:
    """The schedule, its predicted seconds and the bound's, of the prefix's own ddl-sim."""
    words = ["-topology", "/dev/stdin", "-size", str(nbytes), "-schedule", schedule, "-json"]
    words += ["-ranks_per_host", str(layout.ranks_per_host)]
    words += [word for name, value in LAB.items() for word in (f"-{name}", str(value))]
    done = subprocess.run(
        [str(prefix / "bin" / "ddl-sim"), *words],
        input=topology_yaml(layout),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ValueError(done.stderr.strip() or f"ddl-sim ended with {done.returncode}")
    found = json.loads(done.stdout)["sizes"][0]
    return found["schedule"], found["seconds"], found["bound"]


def run_cell(layout: Layout, order: str, nbytes: int, ask: argparse.Namespace) -> list[Row]:
    """A row for each schedule; repetitions take turns over the schedules."""
    prefix = (ask.ddl_prefix or built()).resolve()
    peers = {
        name: Ddl(ask.ddl_prefix, ask.mpi_prefix, topology=True, schedule=name)
        for name in ask.schedules
    }
    times: dict[str, list[float]] = {name: [] for name in peers}
    failures: dict[str, str] = {}
    for peer in peers.values():
        peer.prepare()
    for _, (name, peer) in product(range(ask.repetitions), peers.items()):
        with bring_up(layout) as lab:  # in between, others on this machine have their turn
            cell = measure(lab, order, nbytes, peer, Budget(ask.iterations, 15, 60))
        times[name] += cell.times
        if cell.failure:
            failures[name] = cell.failure
    rows = []
    for name, same in times.items():
        chosen, predicted, bound = predict(prefix, layout, nbytes, name)
        row = Row(layout.name, order, nbytes, name, chosen, bound, predicted)
        if same and name not in failures:
            measured = {"measured": statistics.median(same), "least": min(same)}
            row = Row(**{**asdict(row), **measured, "p95": percentile(same, 0.95)})
        else:
            row = Row(**{**asdict(row), "failure": failures.get(name, "no times")})
        rows.append(row)
    return rows


def make_table(rows: list[Row]) -> Table:
    """The table, times in ms."""
    table = Table("layout", "order", "size", "schedule", "bound", "predicted", "measured", "min")
    table.add_column("p95")
    table.add_column("error")
    for column in table.columns[4:]:
        column.justify = "right"
    for row in rows:
        chosen = row.chosen if row.schedule == row.chosen else f"{row.schedule}: {row.chosen}"
        numbers = (row.bound, row.predicted, row.measured, row.least, row.p95)
        texts = [f"{1e3 * number:.4g}" for number in numbers]
        error = row.failure if row.error is None else f"{100 * row.error:+.1f}%"
        table.add_row(row.layout, row.order, size_text(row.nbytes), chosen, *texts, error)
    return table


def show_and_write(rows: list[Row], ask: argparse.Namespace) -> None:
    """The table and the JSON."""
    Console(width=120).print(make_table(rows))
    found = [{**asdict(row), "error": row.error} for row in rows]
    write_report(ask.out or HERE / "out" / "sim.json", ask, lab=LAB, rows=found)


def main() -> None:
    """Run the cells, print the table, write the JSON; also of a run that is interrupted."""
    ask = parse_options()
    if why := why_not():
        print(f"skipped: {why}")
        return
    cells = list(product(ask.layouts, ask.orders)) if ask.layouts else list(CELLS)
    rows: list[Row] = []
    try:
        for (name, order), nbytes in product(cells, ask.sizes):
            layout = parse_layout(name, ask.host_mbit, ask.uplink_mbit)
            for row in run_cell(layout, order, nbytes, ask):
                rows.append(row)
                said = f"{1e3 * row.predicted:.1f} ms, {1e3 * row.measured:.1f} measured"
                where = f"{name} {order} {size_text(nbytes)} {row.schedule}"
                print(f"{where}: {row.failure or said}", flush=True)
    finally:
        if rows:
            show_and_write(rows, ask)
    errors = [row.error for row in rows]
    if any(error is None or (ask.most_error and abs(error) > ask.most_error) for error in errors):
        sys.exit(f"a run failed, or a prediction is off by more than {ask.most_error:.0%}")


if __name__ == "__main__":
    run_command(main)
