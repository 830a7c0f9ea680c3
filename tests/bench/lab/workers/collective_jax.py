"""The worker of bench_jax_lab: one of XLA's collectives, on one device of each rank.

WORKER COLLECTIVE BYTES ITERATIONS SECONDS COUNTERS FOLDER

A rank's float32 numbers are small and whole, so that sums are exact. BYTES are of what `all_gather`
gives and of what each rank has for the others; the numbers are read as rows, one for each rank. The
first call compiles and is not timed. The file COUNTERS is copied to FOLDER/begin and FOLDER/end
around the timed calls. Rank 0 prints one line of JSON, as worker.h says: times, wrong, cpu, hosts,
library.
"""

from __future__ import annotations

import json
import shutil
import socket
import sys
import time
from typing import Any

import ddl
import jax
import numpy as np
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

LEAST = 3
"""Timed calls that every run has."""
HOST_BYTES = 64


def given(rank: int, rows: int, columns: int) -> np.ndarray:
    """A rank's numbers, other for each rank and position."""
    places = np.arange(rows * columns, dtype=np.int64).reshape(rows, columns)
    return (places * (rank + 1) % 31 + rank).astype(np.float32)


def collective(name: str, mine: jax.Array, rank: int, size: int) -> tuple[Any, np.ndarray]:
    """The function of a rank's rows, and what rank `rank` must get of it."""
    rows, columns = size, mine.shape[-1]
    every = [given(other, rows, columns) for other in range(size)]
    if name == "psum":
        return lambda x: lax.psum(x, "i"), np.sum(every, 0)
    if name == "psum_scatter":
        return lambda x: lax.psum_scatter(x, "i", tiled=True), np.sum(every, 0)[rank : rank + 1]
    if name == "all_gather":
        gathered = np.concatenate([one[:1] for one in every])
        return lambda x: lax.all_gather(x[:1], "i", tiled=True), gathered
    exchanged = np.stack([one[rank] for one in every])
    return lambda x: lax.all_to_all(x, "i", 0, 0, tiled=True), exchanged


def main() -> None:
    """Barrier, one call under the clock, and so on; the last result is checked."""
    name, nbytes, most, seconds, counters, folder = sys.argv[1:]
    jax.distributed.initialize()
    rank, size = jax.process_index(), jax.process_count()
    mesh = jax.make_mesh((size,), ("i",))
    mine = given(rank, size, int(nbytes) // 4 // size)
    x = jax.make_array_from_callback(
        (size * size, mine.shape[1]), NamedSharding(mesh, P("i")), lambda _: mine
    )
    function, expected = collective(name, x, rank, size)
    call = jax.jit(jax.shard_map(function, mesh=mesh, in_specs=P("i"), out_specs=P("i")))
    call(x).block_until_ready()
    times: list[float] = []
    cpu, is_over = 0.0, False
    if rank == 0:
        shutil.copyfile(counters, f"{folder}/begin")
    while not is_over:
        ddl.barrier()
        before, start = time.process_time(), time.perf_counter()
        result = call(x).block_until_ready()
        taken = time.perf_counter() - start
        cpu += time.process_time() - before
        times.append(float(ddl.allreduce(np.array([taken]), "max")[0]))
        is_over = len(times) >= int(most) or (len(times) >= LEAST and sum(times) > float(seconds))
    ddl.barrier()
    if rank == 0:
        shutil.copyfile(counters, f"{folder}/end")
    wrong = int((np.asarray(result.addressable_data(0)) != expected).sum())
    cpu, wrong = (ddl.allreduce(np.array([float(one)]))[0] for one in (cpu, wrong))
    names = np.zeros((size, HOST_BYTES), np.uint8)
    own = socket.gethostname().encode()[:HOST_BYTES]
    names[rank, : len(own)] = list(own)
    names = ddl.allreduce(names.astype(np.int32))
    if rank == 0:
        hosts = [bytes(row[row > 0].astype(np.uint8)).decode() for row in names]
        report = {"times": times, "wrong": int(wrong), "cpu": float(cpu), "hosts": hosts}
        print(json.dumps(report | {"library": f"jax {jax.__version__}"}), flush=True)


if __name__ == "__main__":
    main()
