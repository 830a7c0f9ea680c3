"""JAX's collectives in the lab: XLA's own, by ddl, beside what the network allows at best.

    python tests/bench/bench_jax_lab.py
    python tests/bench/bench_jax_lab.py --orders sorted --collectives psum --size 64K --iterations 3

Needs root, else it says so and does nothing. A layout and an order are as in bench_lab.py, one rank
to a host; ddl knows the racks from a topology file. `psum` and `psum_scatter` are of 4 MiB a rank,
`all_gather` gives each that much, and `all_to_all` takes it. The bound of a cut is what must cross
it in one direction. `--by gloo` shows JAX's own collectives, which are not judged. Prints a line
for each run, then the table, and writes both as JSON; ends with 1 and names each collective that
takes more than 1.08 times the bound.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.check import Check, missed
from bench.collectives import add_options, bound_check, layouts_of, measure_all, ours
from bench.command import asker, end, run_command
from bench.environment import environment_with, research
from bench.lab.bound import COLLECTIVES, bound_of
from bench.lab.cell import Budget, Cell, outcome_of
from bench.lab.layout import rank_order
from bench.lab.network import Lab, why_not
from bench.lab.peers.ddl import start_told

HERE = Path(__file__).parent
OUT = HERE / "out" / "jax_lab.json"
WORKER = HERE / "lab" / "workers" / "collective_jax.py"
ROW = "JAX's collectives in the lab, 4 MiB, 2 racks x 4 hosts"
BAR = 1.08
WAYS = {"ddl": {}, "gloo": {"JAX_CPU_COLLECTIVES_IMPLEMENTATION": "gloo"}}


def parse_options() -> argparse.Namespace:
    """The command line."""
    ask = asker(__doc__)
    ask.add_argument("--layouts", nargs="+", default=["racks-2x4"], help="default: racks-2x4")
    add_options(ask, COLLECTIVES, WAYS, OUT)
    ask.set_defaults(by=["ddl"])
    ask.add_argument("--prefix", type=Path, help="an environment with ddl-jax")
    return ask.parse_args()


def run(
    lab: Lab, order: str, collective: str, way: str, prefix: Path, ask: argparse.Namespace
) -> Cell:
    """One collective once; a failure is an outcome, not an error."""
    hosts = [f"h{host}" for host in rank_order(lab.layout, order)]
    words = [str(prefix / "bin" / "python"), str(WORKER), collective, str(ask.size)]
    words += [str(ask.iterations), str(ask.seconds), str(lab.counters), str(lab.folder)]
    started = start_told(lab, prefix, hosts, words)
    one_thread = {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false", "OMP_NUM_THREADS": "1"}
    started = replace(started, env=started.env | one_thread | WAYS[way])
    bound = bound_of(collective, lab.layout, ask.size)
    cell = Cell(lab.layout.name, order, ask.size, f"{collective} by {way}", bound)
    return outcome_of(lab, cell, hosts, started, Budget(limit=ask.limit))


def checks(cells: list[Cell]) -> list[Check]:
    """What the bar demands of ddl's."""
    return [bound_check(ROW, cell, BAR) for cell in ours(cells)]


def main() -> None:
    """Run the cells, print the table, write the JSON; also of a run that is interrupted."""
    ask = parse_options()
    if why := why_not():
        print(f"skipped: {why}")
        return
    prefix = environment_with("mpiexec", ask.prefix or research())
    places = product(layouts_of(ask), ask.orders)
    cells = measure_all(places, ask, partial(run, prefix=prefix, ask=ask))
    end(missed(checks(cells)))


if __name__ == "__main__":
    run_command(main)
