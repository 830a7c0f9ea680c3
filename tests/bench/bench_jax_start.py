"""Seconds from ddlrun's start to JAX's first sum over the ranks: on one rank and on several.

    python tests/bench/bench_jax_start.py
    python tests/bench/bench_jax_start.py --prefix ENVIRONMENT --ranks 2 --rounds 1

Every job begins with an empty compilation cache that its ranks share, and takes turns with the
others. `initialize()` is JAX's call by itself, from the last rank's call to the last one's end:
before, ranks only wait for those that still import JAX. `first sum` is all of a start: the import
of JAX, that call, the compilation and the sum. `cores` are the processors that the ranks used
together: where they are all that there are, more ranks start later whoever starts them. Writes
tests/bench/out/jax_start.json; ends with 1 where several ranks take more than 1.2 times as long as
one.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from rich.console import Console
from rich.table import Table

from bench.check import Check, missed
from bench.command import answer_of_ranks, asker, end, ended_cpu_seconds, run_command, write_report
from bench.environment import environment_with, research

OUT = Path(__file__).parent / "out" / "jax_start.json"
ROW = "start of JAX: initialize() on 8 ranks vs one, one compilation cache"
BAR = 1.2
FIGURES = ("initialize()", "first sum")
PROGRAM = """
import json, os, time
import jax, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
begin = time.time()
jax.distributed.initialize()
ended = time.time()
mesh = jax.make_mesh((jax.device_count(),), ("i",))
x = jax.make_array_from_callback(
    (jax.device_count(), 8), NamedSharding(mesh, P("i")), lambda _: np.ones((1, 8), np.float32))
total = jax.jit(jax.shard_map(
    lambda a: jax.lax.psum(a, "i"), mesh=mesh, in_specs=P("i"), out_specs=P()))(x)
assert total.addressable_data(0)[0, 0] == jax.device_count()
import ddl
begin, ended, done = ddl.allreduce(np.array([begin, ended, time.time()]), "max").tolist()
if ddl.rank() == 0:
    print(json.dumps({"initialize": ended - begin, "done": done}), flush=True)
"""


@dataclass(frozen=True)
class Start:
    """What a start took, in seconds, and the processors that it used."""

    figures: tuple[float, ...]
    cores: float


def start(prefix: Path, ranks: int, limit: int) -> Start:
    """Start a job; RuntimeError if it fails."""
    command = [prefix / "bin" / "ddlrun", "-H", f"localhost:{ranks}"]
    command += [prefix / "bin" / "python", "-c", PROGRAM]
    before = ended_cpu_seconds()
    with tempfile.TemporaryDirectory() as cache:
        env = os.environ | {"JAX_COMPILATION_CACHE_DIR": cache}
        begin = time.time()
        said = answer_of_ranks(command, f"{ranks} ranks", env, limit)
        seconds = time.time() - begin
    used = ended_cpu_seconds() - before
    return Start((said["initialize"], said["done"] - begin), used / seconds)


def medians(starts: list[Start]) -> list[float]:
    """Of each figure, and of the processors."""
    rows = zip(*((*one.figures, one.cores) for one in starts), strict=True)
    return [statistics.median(row) for row in rows]


def checks(one: list[Start], several: list[Start], ranks: int) -> list[Check]:
    """What the bar demands of the call, and of all of a start."""
    pairs = zip(FIGURES, medians(one), medians(several), strict=False)
    what = "{} times as long as one rank"
    return [
        Check(ROW, f"{figure}, {ranks} ranks", what, theirs / alone, BAR, at_most=True)
        for figure, alone, theirs in pairs
    ]


def main() -> None:
    """Measure, print the table, write the JSON, compare with the bar."""
    parser = asker(__doc__)
    parser.add_argument("--prefix", type=Path, help="an environment with ddl-jax")
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--limit", type=int, default=300, help="end a job after these seconds")
    options = parser.parse_args()
    prefix = environment_with("ddlrun", options.prefix or research())
    starts: dict[int, list[Start]] = {1: [], options.ranks: []}
    for turn in range(options.rounds):
        for ranks, found in starts.items():
            found.append(start(prefix, ranks, options.limit))
            shown = ", ".join(f"{x:.2f} s" for x in found[-1].figures)
            print(f"turn {turn + 1}: {ranks} ranks: {shown}", flush=True)
    table = Table("ranks", *FIGURES, "cores", title="seconds")
    for ranks, found in starts.items():
        table.add_row(str(ranks), *(f"{figure:.2f}" for figure in medians(found)))
    Console(width=100).print(table)
    rows = [{"ranks": n, "starts": [vars(one) for one in found]} for n, found in starts.items()]
    write_report(OUT, options, prefix=prefix, rows=rows)
    end(missed(checks(starts[1], starts[options.ranks], options.ranks)))


if __name__ == "__main__":
    run_command(main)
