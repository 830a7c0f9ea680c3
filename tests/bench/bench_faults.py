"""Faults in the lab: what the survivors are told and when, and what is left of the job.

    python tests/bench/bench_faults.py
    python tests/bench/bench_faults.py --layouts racks-2x2x2 --ways cut --turns 10 --seed 7

Needs root, else it says so and does nothing. While the ranks call random collectives, at a random
moment the last rank's cable is cut, or the rank is stopped (SIGSTOP) or killed. Each fault happens
twice: first under a wrapper that lets every rank tell its error, then under ddlrun alone, after
which no process and no shared memory may be left on any host (the cable stays cut). Prints a line
for each fault, then the table, and writes both as JSON; ends with 1 and names what falls short of
the bar: an error that names the lost rank on every survivor, at most a second after the
timeout, and no orphan.
"""

from __future__ import annotations

import argparse
import random
import sys
from dataclasses import asdict
from itertools import product
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.check import Check, missed
from bench.command import asker, end, run_command, write_report
from bench.environment import environment_with
from bench.lab.faults import WAYS, Fault, run_fault
from bench.lab.layout import Layout, parse_layout
from bench.lab.network import why_not

HERE = Path(__file__).parent
ROW = "Link cut, rank stopped or killed"
LATE = 1.0
"""Seconds after the timeout."""


def parse_options() -> argparse.Namespace:
    """The command line."""
    ask = asker(__doc__)
    ask.add_argument("--layouts", nargs="+", default=["ragged-2+1", "racks-2x2x2"])
    ask.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    ask.add_argument("--turns", type=int, default=3, help="faults of each kind; default: 3")
    ask.add_argument("--seed", type=int, help="of the first turn; default: another each time")
    ask.add_argument("--timeout", type=float, default=3, help="libddl's, in seconds; default: 3")
    ask.add_argument("--host-mbit", type=float, default=250, help="rate of a host's link")
    ask.add_argument("--uplink-mbit", type=float, default=50, help="rate of a rack's uplink")
    ask.add_argument("--prefix", type=Path, help="where ddl is; default: the built environment")
    ask.add_argument("--out", type=Path, help="the JSON")
    return ask.parse_args()


def checks(faults: list[Fault]) -> list[Check]:
    """Everything that is as the bar demands, or not."""
    found = []
    for fault in faults:
        place = where(fault)
        if fault.failure:
            found.append(Check(ROW, place, failure=fault.failure))
        for rank in fault.silent:
            found.append(Check(ROW, place, failure=f"rank {rank} has no error"))
        if fault.late:
            what = "the last survivor has its error {} s after the timeout"
            late = max(fault.late) - fault.timeout
            found.append(Check(ROW, place, what, late, LATE, at_most=True))
        for what, these in (
            ("{} survivors are not told the lost rank", fault.unnamed),
            ("{} files are left in shared memory", fault.left),
            ("{} processes are left", range(fault.orphans)),
        ):
            found.append(Check(ROW, place, what, len(these), 0, at_most=True))
    return found


def where(fault: Fault) -> str:
    """Which fault it is."""
    return f"{fault.layout} {fault.way} (seed {fault.seed})"


def fault_text(fault: Fault) -> str:
    """A fault in a line, while they go on."""
    if fault.failure:
        return f"{where(fault)}: {fault.failure}"
    late = f"{max(fault.late):.1f} s" if fault.late else "nobody"
    told = f"{len(fault.late) - len(fault.unnamed)} of {len(fault.late) + len(fault.silent)} named"
    return f"{where(fault)}: {late}, {told}, {fault.orphans} orphans: {fault.said}"


def make_table(faults: list[Fault]) -> Table:
    """A row for each layout and way."""
    table = Table("layout", "fault", "turns", "survivors", "error", "named")
    for column in ("late: median", "latest", "orphans", "in /dev/shm", "kinds"):
        table.add_column(column, justify="right")
    for layout, way in dict.fromkeys((fault.layout, fault.way) for fault in faults):
        same = [fault for fault in faults if (fault.layout, fault.way) == (layout, way)]
        late = sorted(seconds - fault.timeout for fault in same for seconds in fault.late)
        told, silent = len(late), sum(len(fault.silent) for fault in same)
        table.add_row(
            *(layout, way, str(len(same)), str(told + silent), str(told)),
            str(told - sum(len(fault.unnamed) for fault in same)),
            *((f"{x:+.1f} s" for x in (late[told // 2], late[-1])) if late else ("-", "-")),
            str(sum(fault.orphans for fault in same)),
            str(sum(len(fault.left) for fault in same)),
            " ".join(sorted({code for fault in same for code in fault.codes})),
        )
    return table


def main() -> None:
    """Run the faults, print the table, write the JSON; also of a run that is interrupted."""
    ask = parse_options()
    if why := why_not():
        print(f"skipped: {why}")
        return
    prefix = environment_with("python", ask.prefix)
    seed = random.SystemRandom().randrange(10**6) if ask.seed is None else ask.seed
    print(f"the first turn's seed is {seed}")
    layouts: list[Layout] = [
        parse_layout(name, ask.host_mbit, ask.uplink_mbit) for name in ask.layouts
    ]
    faults: list[Fault] = []
    try:
        for turn, layout, way in product(range(ask.turns), layouts, ask.ways):
            faults.append(run_fault(layout, prefix, way, seed + turn, ask.timeout))
            print(fault_text(faults[-1]), flush=True)
    finally:
        if faults:
            Console(width=120).print(make_table(faults))
            found = [asdict(fault) for fault in faults]
            write_report(ask.out or HERE / "out" / "faults.json", ask, faults=found)
    for text in dict.fromkeys(text for fault in faults for text in fault.unnamed):
        print(f"does not name the lost rank: {text}")
    end(missed(checks(faults)))


if __name__ == "__main__":
    run_command(main)
