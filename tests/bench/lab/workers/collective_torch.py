"""The worker of bench_collectives: one of torch.distributed's collectives, by one backend.

WORKER BACKEND COLLECTIVE BYTES ITERATIONS SECONDS COUNTERS FOLDER STORE [RANK SIZE]

BYTES are of float32: what each rank has, or what `all_gather` and `broadcast` give it. `skewed` is
an all-to-all in which some ranks get more of everybody than others (skewed.py). Numbers are small
and whole, so that sums are exact. The first call is not timed. Without RANK and SIZE they are the
launcher's. The file COUNTERS is copied to FOLDER/begin and FOLDER/end around the timed calls. Rank
0 prints one line of JSON, as worker.h says: times, wrong, cpu, hosts, library.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).parents[3]))

from bench.lab.skewed import weights
from bench.lab.workers.first import be_first

LEAST = 3
"""Timed calls that every run has."""


def shares_of(count: int, by_rank: list[int]) -> list[int]:
    """How many of `count` elements each rank gets, by its weight."""
    bounds = [count * sum(by_rank[:rank]) // sum(by_rank) for rank in range(len(by_rank) + 1)]
    return [end - begin for begin, end in pairwise(bounds)]


def given(rank: int, count: int) -> torch.Tensor:
    """A rank's numbers, other for each rank and position."""
    return (torch.arange(count) * (rank + 1) % 31 + rank).float()


def collective(
    name: str, rank: int, size: int, count: int
) -> tuple[Callable[[], None], Callable[[], int]]:
    """A call, and after it, how many of this rank's elements are wrong."""
    mine, every = given(rank, count), [given(other, count) for other in range(size)]
    rows = count // size
    shares = shares_of(count, weights(size) if name == "skewed" else [1] * size)
    if name == "all_reduce":
        out = torch.empty(count)
        wanted = torch.stack(every).sum(0)

        def call() -> None:
            out.copy_(mine)
            dist.all_reduce(out)
    elif name == "broadcast":
        out, wanted = mine.clone(), every[0]

        def call() -> None:
            dist.broadcast(out, 0)
    elif name == "all_gather":
        out, wanted = torch.empty(rows * size), torch.cat([one[:rows] for one in every])

        def call() -> None:
            dist.all_gather_into_tensor(out, mine[:rows])
    elif name == "reduce_scatter":
        out = torch.empty(rows)
        wanted = torch.stack(every).sum(0)[rank * rows : (rank + 1) * rows]

        def call() -> None:
            dist.reduce_scatter_tensor(out, mine[: rows * size])
    else:
        begin = sum(shares[:rank])
        wanted = torch.cat([one[begin : begin + shares[rank]] for one in every])
        out = torch.empty(len(wanted))

        def call() -> None:
            dist.all_to_all_single(out, mine, [shares[rank]] * size, shares)

    return call, lambda: int((out != wanted).sum())


def main() -> None:
    """Barrier, one call under the clock, and so on; the last result is checked."""
    backend, name, nbytes, most, seconds, counters, folder, store, *who = sys.argv[1:]
    rank, size = (int(word) for word in who or (os.environ["PMI_RANK"], os.environ["PMI_SIZE"]))
    torch.set_num_threads(1)
    limit = timedelta(seconds=300)
    dist.init_process_group(backend, init_method=store, rank=rank, world_size=size, timeout=limit)
    call, wrong = collective(name, rank, size, int(nbytes) // 4)
    call()
    be_first()
    times: list[float] = []
    cpu, is_over = 0.0, False
    if rank == 0:
        shutil.copyfile(counters, f"{folder}/begin")
    while not is_over:
        dist.barrier()
        before, start = time.process_time(), time.perf_counter()
        call()
        taken = torch.tensor([time.perf_counter() - start])
        cpu += time.process_time() - before
        dist.all_reduce(taken, dist.ReduceOp.MAX)
        times.append(float(taken))
        is_over = len(times) >= int(most) or (len(times) >= LEAST and sum(times) > float(seconds))
    dist.barrier()
    if rank == 0:
        shutil.copyfile(counters, f"{folder}/end")
    said: list[tuple[float, float, str]] = [(0, 0, "")] * size
    dist.all_gather_object(said, (cpu, wrong(), socket.gethostname()))
    cpus, wrongs, hosts = zip(*said, strict=True)
    if rank == 0:
        found = {"times": times, "wrong": sum(wrongs), "cpu": sum(cpus), "hosts": hosts}
        print(
            json.dumps(found | {"library": f"{backend} of torch {torch.__version__}"}), flush=True
        )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
