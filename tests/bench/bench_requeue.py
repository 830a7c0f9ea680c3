"""Jobs of Slurm that are interrupted at random moments, and go on from their checkpoints.

    python tests/bench/bench_requeue.py
    python tests/bench/bench_requeue.py --cycles 30 --seed 7

Needs root and Slurm, else it says so and does nothing. A tiny training on two of four hosts saves
every third step. It is interrupted again and again: Slurm's warning (SIGUSR1), `scontrol requeue`,
a rank that is killed, all ranks that are killed, a host that fails. Each time the files are judged
when the job is gone, and it must go on from the newest complete checkpoint. At last it finishes,
and its weights are compared with those of an undisturbed run. Prints a line for each interruption,
then the table, and writes both as JSON; ends with 1 and names what falls short of the bar.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.check import Check, missed
from bench.command import asker, end, run_command, write_report
from bench.environment import environment_with
from bench.lab import slurm as slurms
from bench.lab.layout import parse_layout
from bench.lab.network import bring_up, why_not
from bench.lab.requeue import SAVE_EVERY, STATE_TIMEOUT_S, WAYS, Cycle, Training
from bench.lab.slurm import Slurm, slurm_in

HERE = Path(__file__).parent
ROW = "Interrupted jobs go on"


def parse_options() -> argparse.Namespace:
    """The command line."""
    ask = asker(__doc__)
    ask.add_argument("--cycles", type=int, default=100, help="interruptions; default: 100")
    ask.add_argument("--latest", type=float, default=4.0, help="seconds from a start; default: 4")
    ask.add_argument("--pause", type=float, default=0.02, help="seconds of a step; default: 0.02")
    ask.add_argument("--seed", type=int, help="of the ways and moments; default: another each time")
    ask.add_argument("--prefix", type=Path, help="where ddl is; default: the built environment")
    ask.add_argument("--out", type=Path, help="the JSON")
    return ask.parse_args()


def checks(cycles: list[Cycle], same: bool | None) -> list[Check]:
    """Everything that is as it must be, or not."""
    found = []
    for number, cycle in enumerate(cycles):
        place = f"interruption {number} ({cycle.way})"
        limit = 0 if cycle.announced else SAVE_EVERY
        found.append(Check(ROW, place, "{} steps are lost", cycle.lost, limit, at_most=True))
        found.append(Check(ROW, place, "{} damaged checkpoints", cycle.damaged, 0, at_most=True))
        if cycle.resumed != cycle.saved:
            failure = f"it went on at step {cycle.resumed}, and {cycle.saved} was saved"
            found.append(Check(ROW, place, failure=failure))
    if same is not True:
        said = "were not compared" if same is None else "are not those of the undisturbed run"
        found.append(Check(ROW, "the weights at the end", failure=f"they {said}"))
    return found


def make_table(cycles: list[Cycle]) -> Table:
    """A row for each way."""
    table = Table("interruption", "times")
    for column in ("in training", "steps lost: median", "most", "half-written", "damaged"):
        table.add_column(column, justify="right")
    table.add_column("requeued by itself", justify="right")
    table.add_column("until it trains: median", justify="right")
    for way in WAYS:
        same = [cycle for cycle in cycles if cycle.way == way]
        if same:
            lost = [cycle.lost for cycle in same]
            table.add_row(
                *(way, str(len(same)), str(sum(cycle.trained for cycle in same))),
                *(f"{statistics.median(lost):g}", str(max(lost))),
                str(sum(cycle.half for cycle in same)),
                str(sum(cycle.damaged for cycle in same)),
                str(sum(cycle.requeued for cycle in same)),
                f"{statistics.median(cycle.seconds for cycle in same):.1f} s",
            )
    return table


def run_cycles(slurm: Slurm, prefix: Path, ask: argparse.Namespace, cycles: list[Cycle]) -> bool:
    """Interrupt a training again and again; whether its weights are those of an undisturbed one."""
    training = Training(slurm, prefix, "training", ask.pause)
    for number in range(ask.cycles):
        way = WAYS[number % len(WAYS)]
        cycles.append(training.interrupt(way, random.uniform(0, ask.latest)))
        cycle = cycles[-1]
        print(
            f"{number}: {way} after {cycle.moment:.2f} s: step {cycle.made}, went on at "
            f"{cycle.resumed}, {cycle.half} half-written, {cycle.seconds:.1f} s",
            flush=True,
        )
    total = training.finish(40)
    undisturbed = Training(slurm, prefix, "undisturbed", 0.0, total)
    slurm.wait(undisturbed.number, STATE_TIMEOUT_S)
    print(f"{total} steps")
    return len(training.weights()) == 1 and training.weights() == undisturbed.weights()


def main() -> None:
    """Run the cycles, print the table, write the JSON; also of a run that is interrupted."""
    ask = parse_options()
    if why := why_not() or slurms.why_not():
        print(f"skipped: {why}")
        return
    prefix = environment_with("ddlrun", ask.prefix)
    seed = random.SystemRandom().randrange(10**6) if ask.seed is None else ask.seed
    random.seed(seed)
    print(f"the seed is {seed}")
    cycles: list[Cycle] = []
    same: bool | None = None
    try:
        with bring_up(parse_layout("racks-2x2")) as lab, slurm_in(lab) as slurm:
            same = run_cycles(slurm, prefix, ask, cycles)
    finally:
        if cycles:
            Console(width=120).print(make_table(cycles))
            found = [asdict(cycle) for cycle in cycles]
            out = ask.out or HERE / "out" / "requeue.json"
            write_report(out, ask, cycles=found, same_weights=same)
    print(f"the weights are those of the undisturbed run: {same}")
    end(missed(checks(cycles, same)))


if __name__ == "__main__":
    run_command(main)
