"""What the timeline costs: the same calls with DDL_TIMELINE and without, in turn.

    python tests/bench/bench_timeline.py
    python tests/bench/bench_timeline.py --ranks 2 --hosts 1 --rounds 30

A call is an allreduce of float32, below the checks of the Python interface. A job times bursts of
calls of each size, and of a training's step: the gradients of ResNet-50 as DDP's buckets of 25 MB,
asynchronous. A burst takes as long as its slowest rank, and a job's number is its fastest burst,
which other work on the machine disturbs least. A rank alone moves nothing: there, the seconds are
those of its thread, and tell what the record of a call costs. Jobs with and without the timeline
take turns; the ratio is the median over the rounds, with its quartiles. Several hosts are pretended
ones (DDL_FAKE_HOSTS), whose ranks talk by TCP, as hosts do. Prints a table and writes
tests/bench/out/timeline.json; ends with 1 where a step, or a message of 64 KiB or more, costs more
than 1% and the lower quartile says so, too.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.command import answer_of_ranks, asker, end, parse_size, run_command, write_report

OUT = Path(__file__).parent / "out" / "timeline.json"
SIZES = [4, 4 << 10, 64 << 10, 4 << 20]
BUCKETS = [8 << 20, 25 << 20, 25 << 20, 25 << 20, 15 << 20]  # bytes
STEP = 0  # stands for the step among the sizes
BURST_S = 0.02
BY_TCP = {"MPIR_CVAR_NOLOCAL": "1", "UCX_TLS": "tcp,self", "FI_PROVIDER": "tcp"}
WORTH_COMPARING = 64 << 10
BAR = 1.01


def run_as_rank(sizes: list[int], bursts: int) -> None:
    """Time bursts; rank 0 prints the seconds of a call in the fastest one, by size."""
    import ddl
    import numpy as np
    from ddl import _core
    from ddl.errors import check

    ddl.init()
    buffer = np.ones(max(*sizes, *BUCKETS) // 4, np.float32)

    def arguments(nbytes: int) -> tuple[int, ...]:
        """Communicator, send, recv, count, type: float32, operation: max, root."""
        return (0, buffer.ctypes.data, buffer.ctypes.data, nbytes // 4, 0, 3, 0)

    def step() -> None:
        for code, request in [_core.start("allreduce", *arguments(n)) for n in BUCKETS]:
            check(code)
            request.wait_for(1e9)
            check(request.code)

    clock = time.perf_counter if ddl.size() > 1 else time.thread_time

    def time_calls(call: Callable[[], object], number: int) -> float:
        ddl.barrier()
        start = clock()
        for _ in range(number):
            call()
        took = (clock() - start) / number
        return float(ddl.allreduce(np.array([took]), "max")[0])

    fastest = {}
    for nbytes in sizes:
        call: Callable[[], object] = step
        if nbytes != STEP:
            words = arguments(nbytes)
            call = lambda words=words: check(_core.run("allreduce", *words))  # type: ignore[misc]  # noqa: E731
        once = min(time_calls(call, 3) for _ in range(3))
        number = max(1, int(BURST_S / once))
        fastest[nbytes] = min(time_calls(call, number) for _ in range(bursts))
    if ddl.rank() == 0:
        print(json.dumps(fastest))


def run_job(
    options: argparse.Namespace, prefix: Path, ranks: int, hosts: int, file: Path | None
) -> dict[int, float]:
    """Run this file on `ranks` ranks; return what rank 0 printed."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("DDL_")}
    if hosts > 1:
        env |= {"DDL_FAKE_HOSTS": str(hosts), **BY_TCP}
    if file:
        env["DDL_TIMELINE"] = str(file)
    sizes = ",".join(map(str, options.sizes if ranks > 1 else options.sizes[:1]))
    command = [
        *(prefix / "bin" / "mpiexec", "-n", str(ranks), prefix / "bin" / "python", __file__),
        *("--as-rank", sizes, "--bursts", str(options.bursts)),
    ]
    answer = answer_of_ranks(command, f"bench_timeline: {ranks} ranks", env)
    return {int(nbytes): seconds for nbytes, seconds in answer.items()}


def measure(
    options: argparse.Namespace, prefix: Path, ranks: int, hosts: int
) -> list[dict[str, Any]]:
    """Jobs with and without in turn, `rounds` times; one row for each size."""
    ratios: dict[int, list[float]] = defaultdict(list)
    without: dict[int, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(options.rounds):
            files = [None, Path(folder) / "timeline.json"]
            # Whichever comes second has the same chance of a warmer machine.
            jobs = {
                file: run_job(options, prefix, ranks, hosts, file)
                for file in files[:: (-1) ** turn]
            }
            for nbytes, seconds in jobs[None].items():
                ratios[nbytes].append(jobs[files[1]][nbytes] / seconds)
                without[nbytes].append(seconds)
    rows = []
    for nbytes, values in ratios.items():
        low, middle, high = statistics.quantiles(values, n=4)
        microseconds = statistics.median(without[nbytes]) * 1e6
        rows.append(
            {
                "ranks": ranks,
                "hosts": hosts,
                "call": "step" if nbytes == STEP else f"{nbytes} B",
                "is_compared": ranks > 1 and (nbytes == STEP or nbytes >= WORTH_COMPARING),
                "without_us": microseconds,
                "ratio": middle,
                "quartiles": [low, high],
            }
        )
    return rows


def parse_options() -> argparse.Namespace:
    """The command line."""
    ask = asker(__doc__)
    ask.add_argument("--ranks", nargs="+", type=int, default=[1, 2])
    ask.add_argument("--hosts", nargs="+", type=int, default=[1, 2])
    ask.add_argument("--sizes", nargs="+", type=parse_size, default=SIZES)
    ask.add_argument("--rounds", type=int, default=15, help="jobs of each kind")
    ask.add_argument("--bursts", type=int, default=20, help="in a job")
    ask.add_argument("--prefix", type=Path, help="where ddl is; default: the built environment")
    ask.add_argument("--out", type=Path, default=OUT, help="the JSON")
    ask.add_argument("--as-rank", help=argparse.SUPPRESS)
    return ask.parse_args()


def main() -> None:
    """Measure, print, write, compare with the bar."""
    options = parse_options()
    if options.as_rank is not None:
        return run_as_rank([int(word) for word in options.as_rank.split(",")], options.bursts)
    from bench.environment import environment_with  # a rank's interpreter may lack what it needs

    options.sizes = [*options.sizes, STEP]
    prefix = environment_with("mpiexec", options.prefix)
    print("| ranks | hosts | call | us without | with, as a multiple | quartiles |")
    print("|---|---|---|---|---|---|")
    rows = []
    for ranks, hosts in product(options.ranks, options.hosts):
        if hosts > ranks:
            continue
        for row in measure(options, prefix, ranks, hosts):
            low, high = row["quartiles"]
            print(
                f"| {ranks} | {hosts} | {row['call']} | {row['without_us']:.2f} | "
                f"{row['ratio']:.4f} | {low:.4f} to {high:.4f} |",
                flush=True,
            )
            rows.append(row)
    write_report(options.out, options, load=os.getloadavg(), rows=rows)
    end(
        [
            f"{row['ranks']} ranks on {row['hosts']} hosts, {row['call']}: {row['ratio']:.4f}"
            for row in rows
            if row["is_compared"] and row["ratio"] > BAR and row["quartiles"][0] > BAR
        ]
    )


if __name__ == "__main__":
    run_command(main)
