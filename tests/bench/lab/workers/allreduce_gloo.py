"""The worker of Gloo: what worker.h does, with torch.distributed in place of MPI.

WORKER BYTES ITERATIONS SECONDS COUNTERS FOLDER STORE RANK SIZE
"""

from __future__ import annotations

import json
import shutil
import socket
import sys
import time

import torch
import torch.distributed as dist

PERIOD = 509


def contribution(rank: int, count: int, call: int) -> torch.Tensor:
    """A rank's small integers, other for each rank, position and call."""
    return (torch.arange(count) % PERIOD * (rank + 1) + call).remainder_(32).float()


def main() -> None:
    """Fill, barrier, one call under the clock, check; as worker.h."""
    nbytes, most, seconds, counters, folder, store, rank_text, size_text = sys.argv[1:]
    rank, size, count = int(rank_text), int(size_text), int(nbytes) // 4
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=size)
    times: list[float] = []
    cpu, wrong, more = 0.0, 0, torch.ones(1)
    while more.item():
        call = len(times)
        data = contribution(rank, count, call)
        parts = [contribution(other, min(count, PERIOD), call) for other in range(size)]
        expected = torch.stack(parts).sum(0).repeat(count // PERIOD + 1)[:count]
        dist.barrier()
        if call == 1:
            if rank == 0:
                shutil.copyfile(counters, f"{folder}/begin")
            dist.barrier()
        before, start = time.process_time(), time.perf_counter()
        dist.all_reduce(data)
        times.append(time.perf_counter() - start)
        cpu += (time.process_time() - before) if call else 0
        wrong += int((data != expected).sum())
        calls = call + 1
        more.fill_(calls <= int(most) and (calls <= 3 or sum(times) < float(seconds)))
        dist.broadcast(more, 0)
    dist.barrier()
    if rank == 0:
        shutil.copyfile(counters, f"{folder}/end")
    slowest = torch.tensor(times, dtype=torch.float64)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    sums = torch.tensor([cpu, wrong], dtype=torch.float64)
    dist.all_reduce(sums)
    hosts: list[str] = [""] * size
    dist.all_gather_object(hosts, socket.gethostname())
    if rank == 0:
        report = {"times": slowest[1:].tolist(), "wrong": int(sums[1]), "cpu": sums[0].item()}
        report |= {"hosts": hosts, "library": f"gloo of torch {torch.__version__}"}
        print(json.dumps(report), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
