"""200 small allreduces, as of gradients: one by one, asynchronous, and asynchronous and fused.

    python tests/bench/bench_fusion.py
    python tests/bench/bench_fusion.py --ranks 2 --hosts 1 --fusion-bytes 256K 1M --rounds 9

The tensors have the sizes of ResNet-50's parameters from 1 KiB to 64 KiB, last layer first, again
from the start until there are 200. Jobs with and without fusion take turns; in every job, bursts of
the blocking and of the asynchronous calls take turns. A burst takes as long as its slowest rank.
Calls go below the checks of the Python interface, which cost the same for both kinds. Every element
is checked. Several hosts are pretended ones (DDL_FAKE_HOSTS), whose ranks talk through MPI. Prints
a table and writes tests/bench/out/fusion.json.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import cycle, islice, product
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.command import answer_of_ranks, asker, parse_size, run_command, write_report

OUT = Path(__file__).parent / "out" / "fusion.json"
NUMBER = 200
LEAST, MOST = 1 << 10, 64 << 10  # bytes

Times = dict[str, list[float]]


def resnet50() -> Iterator[int]:
    """The elements of ResNet-50's parameters, first layer first."""

    def conv(inputs: int, outputs: int, size: int) -> Iterator[int]:
        yield inputs * outputs * size * size
        yield from (outputs, outputs)  # weight and bias of the normalisation behind it

    yield from conv(3, 64, 7)
    inputs = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            yield from conv(inputs, width, 1)
            yield from conv(width, width, 3)
            yield from conv(width, 4 * width, 1)
            if block == 0:
                yield from conv(inputs, 4 * width, 1)
            inputs = 4 * width
    yield from (inputs * 1000, 1000)


def burst_sizes() -> list[int]:
    """The elements of the tensors of a burst."""
    small = [n for n in reversed(list(resnet50())) if LEAST <= 4 * n <= MOST]
    return list(islice(cycle(small), NUMBER))


def run_as_rank(bursts: int) -> None:
    """Time bursts; rank 0 prints the milliseconds of each, by kind, and the messages of one."""
    import ddl
    import numpy as np
    from ddl import _core
    from ddl.errors import check

    ddl.init()
    sizes = burst_sizes()
    send = [np.full(n, i % 7 + ddl.rank(), np.float32) for i, n in enumerate(sizes)]
    recv = [np.zeros(n, np.float32) for n in sizes]

    # (communicator, send, recv, count, type: float32, operation: sum, root)
    calls = [
        (0, x.ctypes.data, y.ctypes.data, x.size, 0, 0, 0) for x, y in zip(send, recv, strict=True)
    ]

    def blocking() -> None:
        for call in calls:
            check(_core.run("allreduce", *call))

    def asynchronous() -> None:
        for code, request in [_core.start("allreduce", *call) for call in calls]:
            check(code)
            request.wait_for(1e9)
            check(request.code)

    def time_burst(burst: Callable[[], None]) -> float:
        for y in recv:
            y.fill(0)
        ddl.barrier()
        start = time.perf_counter()
        burst()
        took = ddl.allreduce(np.array([time.perf_counter() - start]), "max")[0]
        size = ddl.size()
        for i, y in enumerate(recv):
            assert (y == i % 7 * size + size * (size - 1) // 2).all(), f"tensor {i} is wrong"
        return float(took) * 1e3

    times: Times = {"blocking": [], "async": []}
    messages = 0
    for turn in range(bursts + 2):  # two to warm up
        for name, burst in (("blocking", blocking), ("async", asynchronous)):
            before = ddl.stats().collectives
            took = time_burst(burst)
            messages = ddl.stats().collectives - before - 2  # less the barrier and the maximum
            if turn >= 2:
                times[name].append(took)
    if ddl.rank() == 0:
        print(json.dumps({"times": times, "messages": messages}))


def run_job(prefix: Path, ranks: int, hosts: int, nbytes: int, bursts: int) -> dict[str, Any]:
    """Run this file on `ranks` ranks; return what rank 0 printed."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("DDL_")}
    env["DDL_OPTIONS"] = f"-fusion_bytes {nbytes}"
    if hosts > 1:
        env["DDL_FAKE_HOSTS"] = str(hosts)
    command = [
        *(prefix / "bin" / "mpiexec", "-n", str(ranks)),
        *(prefix / "bin" / "python", __file__, "--as-rank", str(bursts)),
    ]
    answer: dict[str, Any] = answer_of_ranks(command, f"bench_fusion: {ranks} ranks", env)
    return answer


def measure(
    options: argparse.Namespace, prefix: Path, ranks: int, hosts: int
) -> list[dict[str, Any]]:
    """Jobs of all limits in turn, `rounds` times; one row for each kind."""
    times: dict[tuple[str, int], list[float]] = defaultdict(list)
    messages: dict[int, list[int]] = defaultdict(list)
    for _ in range(options.rounds):
        for nbytes in (0, *options.fusion_bytes):
            answer = run_job(prefix, ranks, hosts, nbytes, options.bursts)
            messages[nbytes].append(answer["messages"])
            times["async", nbytes] += answer["times"]["async"]
            times["blocking", 0] += answer["times"]["blocking"]
    rows: list[dict[str, Any]] = []
    for (kind, nbytes), values in sorted(times.items(), key=lambda item: (item[0][1], item[0][0])):
        name = kind if kind == "blocking" else f"async, {nbytes >> 10} KiB" if nbytes else "async"
        low, middle, high = statistics.quantiles(values, n=4)
        rows.append(
            {
                "ranks": ranks,
                "hosts": hosts,
                "kind": name,
                "median_ms": middle,
                "quartiles_ms": [low, high],
                "bursts": len(values),
                "messages": NUMBER
                if kind == "blocking"
                else statistics.median_low(messages[nbytes]),
            }
        )
    base = next(row["median_ms"] for row in rows if row["kind"] == "blocking")
    rows.sort(key=lambda row: row["kind"] != "blocking")
    return [row | {"speedup": base / row["median_ms"]} for row in rows]


def parse_options() -> argparse.Namespace:
    """The command line."""
    ask = asker(__doc__)
    ask.add_argument("--ranks", nargs="+", type=int, default=[2, 4])
    ask.add_argument("--hosts", nargs="+", type=int, default=[1, 2])
    ask.add_argument("--fusion-bytes", nargs="+", type=parse_size, default=[1 << 20])
    ask.add_argument("--rounds", type=int, default=5, help="jobs of each kind")
    ask.add_argument("--bursts", type=int, default=9, help="in a job")
    ask.add_argument("--prefix", type=Path, help="where ddl is; default: the built environment")
    ask.add_argument("--out", type=Path, default=OUT, help="the JSON")
    ask.add_argument("--as-rank", type=int, help=argparse.SUPPRESS)
    return ask.parse_args()


def main() -> None:
    """Measure, print and write."""
    options = parse_options()
    if options.as_rank is not None:
        return run_as_rank(options.as_rank)
    from bench.environment import environment_with  # a rank's interpreter may lack what it needs

    prefix = environment_with("mpiexec", options.prefix)
    sizes = burst_sizes()
    print(f"{NUMBER} tensors, {sum(sizes) * 4 / 1e6:.2f} MB, float32")
    print("| ranks | hosts | calls | ms | quartiles | messages | x blocking |")
    print("|---|---|---|---|---|---|---|")
    rows = []
    for ranks, hosts in product(options.ranks, options.hosts):
        for row in measure(options, prefix, ranks, hosts):
            low, high = row["quartiles_ms"]
            print(
                f"| {ranks} | {hosts} | {row['kind']} | {row['median_ms']:.2f} | {low:.2f} to "
                f"{high:.2f} | {row['messages']} | {row['speedup']:.2f} |",
                flush=True,
            )
            rows.append(row)
    write_report(options.out, options, load=os.getloadavg(), tensors=sizes, rows=rows)


if __name__ == "__main__":
    run_command(main)
