"""Sums of 16-bit floats beside float32 on one host: the bytes of a buffer per second.

    python tests/bench/bench_types.py
    python tests/bench/bench_types.py --ranks 2 --sizes 1M 16M --turns 9

The types take turns, `python -m ddl.bench` measures each, and a cell is the median of the turns; a
rate that of the turns' rates, for a machine that others share changes from turn to turn. Only those
turns count in which the processors were near (`distance.py`); if these are too few, there are more.
Prints a table for each number of ranks, writes both as JSON, and ends with 1 and names each row
that is slower than the bar: 0.9 of float32's bytes per second.
"""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
import time
from itertools import product
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.check import Check, missed
from bench.command import asker, end, parse_size, run_command, write_report
from bench.distance import MORE_TURNS, Batch, Distances, Watch, watch
from bench.environment import environment_with

HERE = Path(__file__).parent
TYPES = ("float32", "float16", "bfloat16")
BAR = 0.9
ROW = "float16, bfloat16"

Times = dict[tuple[int, int, str], list[float]]
"""Microseconds of each turn, by ranks, bytes and type; NaN alone, if the processors were far."""

Turn = dict[str, Batch]
"""The run of each type."""


def measure(prefix: Path, ranks: int, dtype: str, nbytes: int) -> Batch:
    """A run of many allreduces.

    Raises:
        RuntimeError: it could not be measured, or the sum is wrong.
    """
    size = str(nbytes)
    begin = time.monotonic()
    done = subprocess.run(
        [
            *(str(prefix / "bin" / "mpiexec"), "-n", str(ranks)),
            *(str(prefix / "bin" / "python"), "-m", "ddl.bench", "--json", "--dtype", dtype),
            *("--min", size, "--max", size),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"ddl.bench of {dtype}: {(done.stderr or done.stdout).strip()[-500:]}")
    (row,) = json.loads(done.stdout)["rows"]
    return Batch(begin, time.monotonic(), row["time_us"] * 1e-6)


def measure_turns(prefix: Path, ranks: int, nbytes: int, enough: int, watched: Watch) -> list[Turn]:
    """Turns, until in enough of them the processors were near."""
    turns: list[Turn] = []
    for _ in range(enough * (1 + MORE_TURNS)):
        turns.append({name: measure(prefix, ranks, name, nbytes) for name in TYPES})
        if len(times_of(turns, watched.so_far())[TYPES[0]]) == enough:
            break
    return turns


def times_of(turns: list[Turn], distances: Distances) -> dict[str, list[float]]:
    """Microseconds of each type, of the turns in which the processors were near."""
    near = [turn for turn in turns if all(map(distances.are_near, turn.values()))]
    return {name: [turn[name].call * 1e6 for turn in near] for name in TYPES}


def rate(times: Times, ranks: int, nbytes: int, dtype: str) -> float:
    """A type's bytes per second beside float32's, which had its turn a moment before."""
    plain = times[ranks, nbytes, TYPES[0]]
    return statistics.median(a / b for a, b in zip(plain, times[ranks, nbytes, dtype], strict=True))


def table_of(ranks: int, times: Times) -> Table:
    """Microseconds of each type, and how its bytes per second compare with float32's."""
    table = Table(title=f"{ranks} ranks on one host: us per call")
    for column in ("bytes", *TYPES, *(f"{name} / float32" for name in TYPES[1:])):
        table.add_column(column, justify="right")
    for nbytes in sorted({size for n, size, _ in times if n == ranks}):
        found = [statistics.median(times[ranks, nbytes, name]) for name in TYPES]
        ratios = [f"{rate(times, ranks, nbytes, name):.2f} x" for name in TYPES[1:]]
        table.add_row(str(nbytes), *(f"{t:.1f}" for t in found), *ratios)
    return table


def checks(times: Times) -> list[Check]:
    """Everything that is reached, and what has to be."""
    found = []
    for ranks, nbytes, name in sorted(times):
        if name != "float32" and (ranks, nbytes, "float32") in times:
            where = f"{ranks} ranks, {nbytes} bytes"
            reached = rate(times, ranks, nbytes, name)
            found.append(Check(ROW, where, f"{name} has {{}} x float32's rate", reached, BAR))
    return found


def main() -> None:
    """Runs, prints, writes, compares with the bar."""
    ask = asker(__doc__)
    sizes = [64 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20]
    ask.add_argument("--ranks", nargs="+", type=int, default=[2])
    ask.add_argument("--sizes", nargs="+", type=parse_size, default=sizes)
    ask.add_argument("--turns", type=int, default=15)
    ask.add_argument("--prefix", type=Path, help="where ddl is; default: the built environment")
    ask.add_argument("--out", type=Path, default=HERE / "out" / "types.json")
    asked = ask.parse_args()
    prefix = environment_with("mpiexec", asked.prefix)
    turns: dict[tuple[int, int], list[Turn]] = {}
    with watch() as watched:
        for ranks, nbytes in product(asked.ranks, asked.sizes):
            turns[ranks, nbytes] = measure_turns(prefix, ranks, nbytes, asked.turns, watched)
            print(f"{ranks} ranks, {nbytes} bytes: {len(turns[ranks, nbytes])} turns", flush=True)
        distances = watched.so_far()  # later samples tell better which is which
    times: Times = {
        (ranks, nbytes, name): us or [math.nan]
        for (ranks, nbytes), made in turns.items()
        for name, us in times_of(made, distances).items()
    }
    for ranks in asked.ranks:
        Console(width=110).print(table_of(ranks, times))
    rows = [
        {"ranks": n, "bytes": size, "type": name, "us": times[n, size, name]}
        for n, size, name in times
    ]
    write_report(asked.out, asked, cells=rows)
    end(missed(checks(times)))


if __name__ == "__main__":
    run_command(main)
