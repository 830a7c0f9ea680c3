"""psum of JAX on one host: by ddl, by JAX's own gloo, by MPICH, and ddl alone.

    python tests/bench/bench_jax.py
    python tests/bench/bench_jax.py --prefix ENVIRONMENT --ranks 2 --sizes 4K 1M 16M --rounds 5

Jobs of the kinds take turns, and a cell is the median of the jobs' medians: microseconds per call,
until its result is there. MPICH is loaded by jaxlib as ddl-jax is, by a library of the same
functions without ddl's. In a loop, of 100 calls at most, is each call within one compiled program:
`ddl.jax` and psum differ at a program's start, where JAX hands over a token. `ddl` is
`ddl.allreduce` on NumPy's arrays, and `dispatch` is a jitted addition on one rank. All start by
ddlrun. Writes tests/bench/out/jax.json; ends with 1 and names each figure that falls short.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

HERE = Path(__file__).parent
OUT = HERE / "out" / "jax.json"
SOURCE = HERE.parents[1] / "recipes" / "sets" / "full" / "ddl-jax" / "src"
SIZES = [4 << 10, 1 << 20, 16 << 20]
LOOPS = ("psum in a loop", "ddl.jax in a loop")
KINDS = ("psum by ddl", "psum by gloo", "psum by MPICH", *LOOPS, "ddl", "dispatch")
CHOICE = "JAX_CPU_COLLECTIVES_IMPLEMENTATION"
ROW = "psum of JAX: ddl's own call, and XLA's dispatch"

Medians = dict[tuple[str, int], float]


def run_as_rank(kind: str, sizes: list[int]) -> None:
    """Time calls of a kind; rank 0 prints the median seconds of each size."""
    call_of = _numpy_calls if kind == "ddl" else _jax_calls(kind)
    medians = {}
    for nbytes in sizes:
        call = call_of(nbytes // 4)
        times = []
        for turn in range(10 + max(20, min(200, (32 << 20) // nbytes))):
            start = time.perf_counter()
            call()
            if turn >= 10:
                times.append((time.perf_counter() - start) / turns_of(kind, nbytes))
        medians[nbytes] = statistics.median(times)
    if os.environ.get("PMI_RANK", "0") == "0":
        print(json.dumps(medians), flush=True)


def _numpy_calls(n: int) -> Callable[[], Any]:
    import ddl
    import numpy as np

    ddl.init()
    x = np.ones(n, np.float32)
    return lambda: ddl.allreduce(x)


def _jax_calls(kind: str) -> Callable[[int], Callable[[], Any]]:
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding
    from jax.sharding import PartitionSpec as P

    if kind != "dispatch":
        jax.distributed.initialize()
    mesh = Mesh(jax.devices(), "i")
    size = jax.process_count()

    def call_of(n: int) -> Callable[[], Any]:
        one = np.ones((1, n), np.float32)
        turns = turns_of(kind, 4 * n)
        if kind in ("ddl.jax in a loop", "dispatch"):
            here = jax.device_put(one, jax.local_devices()[0])
            program = jax.jit(_in_turns(_allreduce if kind in LOOPS else _double, turns))
            return lambda: program(here).block_until_ready()
        sharding = NamedSharding(mesh, P("i"))
        x = jax.make_array_from_callback((size, n), sharding, lambda _: one)
        body = _in_turns(lambda a: jax.lax.psum(a, "i"), turns)
        spread = jax.shard_map(body, mesh=mesh, in_specs=P("i"), out_specs=P("i"), check_vma=False)
        psum = jax.jit(spread)
        return lambda: psum(x).block_until_ready()

    return call_of


def turns_of(kind: str, nbytes: int) -> int:
    """How many calls a program of this kind makes."""
    return max(4, min(100, (16 << 20) // nbytes)) if kind in LOOPS else 1


def _allreduce(x: Any) -> Any:
    from ddl_jax.functions import allreduce

    return allreduce(x)


def _double(x: Any) -> Any:
    return x + x


def _in_turns(function: Callable[[Any], Any], turns: int) -> Callable[[Any], Any]:
    import jax

    if turns == 1:
        return function
    return lambda a: jax.lax.fori_loop(0, turns, lambda _, y: function(y) * 0.5, a)


def plain_mpich(prefix: Path, folder: Path) -> Path:
    """A library for MPItrampoline with MPICH's collectives: that of ddl-jax without ddl."""
    forward, library = folder / "forward.cc", folder / "libplain.so"
    constants = SOURCE / "cmake" / "constants.txt"
    generator = [sys.executable, str(SOURCE / "cmake" / "forward.py"), str(prefix / "include")]
    subprocess.run([*generator, str(constants), str(forward)], check=True)
    compiler = ["g++", "-std=c++17", "-O2", "-shared", "-fPIC", f"-I{SOURCE / 'csrc'}"]
    sources = [f"-I{prefix / 'include'}", str(forward), str(HERE / "jax_plain.cc")]
    linked = [f"-L{prefix / 'lib'}", "-lmpi", f"-Wl,-rpath,{prefix / 'lib'}", "-o", str(library)]
    subprocess.run([*compiler, *sources, *linked], check=True)
    return library


def run_job(prefix: Path, kind: str, ranks: int, sizes: list[int], plain: Path) -> dict[int, float]:
    """Seconds per call by bytes, as rank 0 of a job found them."""
    from bench.command import answer_of_ranks

    env = {name: value for name, value in os.environ.items() if not name.startswith("DDL_")}
    if kind == "psum by gloo":
        env[CHOICE] = "gloo"
    elif kind == "psum by MPICH":
        env |= {CHOICE: "mpi", "MPITRAMPOLINE_LIB": str(plain)}
    number = "1" if kind == "dispatch" else str(ranks)
    program = [__file__, "--as-rank", kind, "--sizes", *map(str, sizes)]
    launcher = [prefix / "bin" / "ddlrun", "-H", f"localhost:{number}"]
    command = [*launcher, prefix / "bin" / "python", *program]
    answer = answer_of_ranks(command, f"{kind} on {number} ranks", env)
    return {int(nbytes): seconds for nbytes, seconds in answer.items()}


def checks(medians: Medians, sizes: list[int]) -> list[Any]:
    """What the bar demands of psum and of ddl.jax."""
    from bench.check import Check

    found = []
    for nbytes in sizes:
        limit = medians["ddl", nbytes] + medians["dispatch", nbytes]
        share = medians["psum by ddl", nbytes] / limit
        where = f"psum, {nbytes >> 10} KiB"
        words = "{} times ddl's own call and XLA's dispatch"
        found.append(Check(ROW, where, words, share, 1.3, at_most=True))
        share = medians[LOOPS[1], nbytes] / medians[LOOPS[0], nbytes]
        where = f"ddl.jax.allreduce in a loop, {nbytes >> 10} KiB"
        found.append(Check(ROW, where, "{} times psum", share, 1.0, at_most=True))
    return found


def main() -> None:
    """Measures, prints a table, writes the report and compares with the bar."""
    from bench.command import end, parse_size, run_command, write_report

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prefix", type=Path, help="an environment with ddl-jax")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--sizes", type=parse_size, nargs="+", default=SIZES)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--as-rank", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.as_rank:
        return run_as_rank(options.as_rank, options.sizes)
    run_command(lambda: measure(options, write_report, end))


def measure(options: argparse.Namespace, write_report: Any, end: Any) -> None:
    """All jobs, in turns."""
    from rich.console import Console
    from rich.table import Table

    from bench.check import missed
    from bench.environment import research

    prefix = (options.prefix or research()).absolute()
    if not list(prefix.glob("lib/python3*/site-packages/ddl_jax")):
        raise ValueError(f"there is no ddl-jax in {prefix}; run `make full`, or give --prefix")
    cells: dict[tuple[str, int], list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        plain = plain_mpich(prefix, Path(folder))
        for turn in range(options.rounds):
            for kind in KINDS:
                print(f"turn {turn + 1}: {kind}", flush=True)
                found = run_job(prefix, kind, options.ranks, options.sizes, plain)
                for nbytes, seconds in found.items():
                    cells.setdefault((kind, nbytes), []).append(seconds)
    medians = {cell: statistics.median(seconds) for cell, seconds in cells.items()}
    table = Table("microseconds", *(f"{nbytes >> 10} KiB" for nbytes in options.sizes))
    for kind in KINDS:
        table.add_row(kind, *(f"{medians[kind, nbytes] * 1e6:.0f}" for nbytes in options.sizes))
    Console(width=100).print(table)
    rows = [{"kind": kind, "bytes": n, "seconds": cells[kind, n]} for kind, n in cells]
    write_report(OUT, options, cells=rows)
    end(missed(checks(medians, options.sizes)))


if __name__ == "__main__":
    main()
