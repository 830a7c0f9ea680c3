"""`python -m ddl.bench`: how fast is allreduce here, and is it right?

    ddlrun -H localhost:2 python -m ddl.bench
    ddlrun -H localhost:2 python -m ddl.bench --peer mpi --json

Each size has three numbers. The `time` is the slowest rank's, its median over the repetitions. The
`algbw` is the bytes of the buffer per second. The `busbw` is that times 2 (n-1) / n, the share that
each rank must send and receive, and so compares across numbers of ranks. Every element of every
size is checked. `--peer mpi` measures MPI_Allreduce, through mpi4py, in turn with ours.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import ddl
from ddl import _core
from ddl._buffers import TYPES
from ddl.errors import check

Array = np.ndarray[Any, Any]
Call = Callable[[], object]
# Makes the call that sums one buffer into another, of a type. Work that is done once stays out of
# the measurement.
Bind = Callable[[Array, Array, str], Call]

_BUDGET_S = 0.5  # per size and library


def parse_size(text: str) -> int:
    """Return bytes for "4", "64K", "16M" or "1G" (powers of 1024)."""
    unit = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:].upper())
    digits = text if unit is None else text[:-1]
    if not digits.isdigit() or int(digits) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 4, 64K, 16M or 1G")
    return int(digits) * (unit or 1)


def array_of(values: Array, dtype: str) -> Array:
    """Return integers below 256 as an array of the type; NumPy has bfloat16 as its bits only."""
    if dtype == "bfloat16":
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return values.astype(dtype)


def bind_ddl(send: Array, recv: Array, dtype: str) -> Call:
    """Return the call of this library, below the Python interface's checks."""
    arguments = (0, send.ctypes.data, recv.ctypes.data, send.size, TYPES[dtype], 0, 0)
    return lambda: check(_core.run("allreduce", *arguments))


def find_peer(name: str) -> Bind:
    """Return how to call the peer. DDLValueError when mpi4py is missing."""
    try:
        from mpi4py import MPI
    except ImportError:
        raise ddl.DDLValueError(
            f"--peer {name}: mpi4py is not installed", ddl.Result.ARGUMENT
        ) from None
    return lambda send, recv, _dtype: lambda: MPI.COMM_WORLD.Allreduce(send, recv)


def is_right(bind: Bind, count: int, dtype: str) -> bool:
    """Compare every element with the exact sum: one rank's, which all types can hold."""
    position = np.arange(count)
    pattern = position % 13 + 1
    send = array_of(np.where(position % ddl.size() == ddl.rank(), pattern, 0), dtype)
    recv = np.zeros_like(send)
    bind(send, recv, dtype)()
    expected = array_of(pattern, dtype)
    wrong = ddl.allreduce(np.array([np.count_nonzero(recv != expected)], np.int64))
    return int(wrong[0]) == 0


def time_turn(call: Call, calls: int) -> float:
    """Return the slowest rank's seconds per call, over `calls` calls in a row."""
    ddl.barrier()
    start = time.perf_counter()
    for _ in range(calls):
        call()
    elapsed = (time.perf_counter() - start) / calls
    return float(ddl.allreduce(np.array([elapsed]), "max")[0])


def measure(binds: dict[str, Bind], count: int, dtype: str, repetitions: int) -> dict[str, float]:
    """Return the median seconds of each library, which take turns."""
    send = array_of(np.ones(count, np.int64), dtype)
    recv = np.empty_like(send)
    bound = {name: bind(send, recv, dtype) for name, bind in binds.items()}
    calls = {}
    for name, call in bound.items():
        time_turn(call, 1)
        once = time_turn(call, 1)
        calls[name] = max(1, min(1000, int(_BUDGET_S / repetitions / max(once, 1e-7))))
    times: dict[str, list[float]] = {name: [] for name in binds}
    for _ in range(repetitions):
        for name, call in bound.items():
            times[name].append(time_turn(call, calls[name]))
    return {name: statistics.median(values) for name, values in times.items()}


def sweep(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return one row per size and library; on rank 0, print the table on the way."""
    binds: dict[str, Bind] = {"ddl": bind_ddl}
    if options.peer:
        binds[options.peer] = find_peer(options.peer)
    size = ddl.size()
    itemsize = array_of(np.zeros(1), options.dtype).itemsize
    is_printer = ddl.rank() == 0 and not options.json
    if is_printer:
        print(
            f"# ddl {ddl.__version__}, {size} ranks on {ddl.num_hosts()} host(s), {options.dtype}"
        )
        print(f"{'bytes':>12} {'library':>8} {'time us':>12} {'algbw GB/s':>11} {'busbw GB/s':>11}")
    rows = []
    nbytes = max(options.min, itemsize)
    while nbytes <= options.max:
        count = nbytes // itemsize
        medians = measure(binds, count, options.dtype, options.repetitions)
        for name, seconds in medians.items():
            algbw = count * itemsize / seconds / 1e9
            rows.append(
                {
                    "library": name,
                    "bytes": count * itemsize,
                    "time_us": seconds * 1e6,
                    "algbw_gb_s": algbw,
                    "busbw_gb_s": algbw * 2 * (size - 1) / size,
                    "is_right": is_right(binds[name], count, options.dtype),
                }
            )
            if is_printer:
                row = rows[-1]
                print(
                    f"{row['bytes']:>12} {name:>8} {row['time_us']:>12.1f} {algbw:>11.3f} "
                    f"{row['busbw_gb_s']:>11.3f}{'' if row['is_right'] else '  WRONG'}",
                    flush=True,
                )
        nbytes *= options.step
    return rows


def main(arguments: list[str] | None = None) -> int:
    """Measure and print on rank 0; return 0, or 1 if a result was wrong or the library failed."""
    parser = argparse.ArgumentParser(
        prog="python -m ddl.bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--min", type=parse_size, default=4, help="smallest buffer (default 4)")
    parser.add_argument("--max", type=parse_size, default=64 << 20, help="largest (default 64M)")
    parser.add_argument("--step", type=int, default=4, help="factor between sizes (default 4)")
    parser.add_argument("--dtype", choices=tuple(TYPES), default="float32")
    parser.add_argument("--repetitions", type=int, default=11, help="per size (default 11)")
    parser.add_argument("--peer", choices=["mpi"], help="measure it too, in turn")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    if options.step < 2:
        parser.error("--step must be at least 2")
    if options.peer and options.dtype.endswith("float16"):
        parser.error(f"--peer {options.peer} cannot sum {options.dtype}")
    if options.repetitions < 1:
        parser.error("--repetitions must be at least 1")
    try:
        ddl.init()
        rows = sweep(options)
        summary = {
            "ddl": ddl.__version__,
            "ranks": ddl.size(),
            "hosts": ddl.num_hosts(),
            "dtype": options.dtype,
            "rows": rows,
        }
        is_first = ddl.rank() == 0
        ddl.finalize()
    except ddl.DDLError as error:
        print(f"ddl.bench: {error}", file=sys.stderr)
        return 1
    if is_first and options.json:
        print(json.dumps(summary, indent=2))
    return 0 if all(row["is_right"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
