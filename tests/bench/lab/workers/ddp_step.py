"""The worker of bench_ddp: steps of DistributedDataParallel on a model that is all communication.

WORKER BACKEND BYTES ITERATIONS SECONDS COUNTERS FOLDER STORE [RANK SIZE]

The gradients are BYTES of float32; two steps to warm up, then ITERATIONS under the clock, or three
when that takes longer than SECONDS. Without RANK and SIZE they are the launcher's. The file
COUNTERS is copied to FOLDER/begin and FOLDER/end around the timed steps. Rank 0 prints one line of
JSON:
  times      of each step, the maximum over the ranks, in seconds
  differing  weights that are not rank 0's to the bit, over all ranks, at the end
  loss       of all ranks' data after the third of these steps
  cpu        processor seconds of all ranks inside the timed steps
  hosts      the host that each rank is on
  library    what ran
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WIDTH = 256
ROWS = 2
LEARNING_RATE = 0.1
LEAST = 3
"""Timed steps that every run has."""


def be_first() -> None:
    """Put all threads before other load of the machine, as worker.h does; where that is allowed."""
    for thread in Path("/proc/self/task").iterdir():
        with suppress(OSError):
            os.sched_setscheduler(int(thread.name), os.SCHED_RR, os.sched_param(1))


def make_model(nbytes: int) -> nn.Module:
    """Square layers, so many that their gradients are as near to BYTES as can be."""
    torch.manual_seed(1)
    layers = max(1, round(nbytes / (4 * WIDTH * WIDTH)))
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(layers)))
    for weight in model.parameters():
        nn.init.orthogonal_(weight)  # by torch's default hardly a gradient reaches the first layers
    return model


def differing(model: nn.Module, rank: int) -> int:
    """Weights that are not rank 0's."""
    count = 0
    for parameter in model.parameters():
        first = parameter.detach().clone()
        dist.broadcast(first, 0)
        count += int((first != parameter).sum()) if rank else 0
    return count


class Trainer:
    """A model, its optimizer, and this rank's data."""

    def __init__(self, nbytes: int, rank: int) -> None:
        self.model = DistributedDataParallel(make_model(nbytes))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=LEARNING_RATE)
        torch.manual_seed(100 + rank)
        self.inputs, self.targets = torch.randn(ROWS, WIDTH), torch.randn(ROWS, WIDTH)

    def step(self) -> None:
        self.optimizer.zero_grad()
        nn.functional.mse_loss(self.model(self.inputs), self.targets).backward()
        self.optimizer.step()

    def loss(self) -> float:
        """The mean over all ranks' data."""
        with torch.no_grad():
            mine = nn.functional.mse_loss(self.model.module(self.inputs), self.targets)
        dist.all_reduce(mine)
        return mine.item() / dist.get_world_size()


def main() -> None:
    """Warm up, measure, compare, report."""
    backend, nbytes, most, seconds, counters, folder, store, *who = sys.argv[1:]
    rank, size = (int(word) for word in who or (os.environ["PMI_RANK"], os.environ["PMI_SIZE"]))
    torch.set_num_threads(1)
    limit = timedelta(seconds=300)
    dist.init_process_group(backend, init_method=store, rank=rank, world_size=size, timeout=limit)
    trainer = Trainer(int(nbytes), rank)
    trainer.step()  # DDP makes its buckets anew after the first
    trainer.step()
    be_first()
    times: list[float] = []
    cpu, loss, more = 0.0, 0.0, torch.ones(1)
    while more.item():
        dist.barrier()
        if not times:
            if rank == 0:
                shutil.copyfile(counters, f"{folder}/begin")
            dist.barrier()
        before, start = time.process_time(), time.perf_counter()
        trainer.step()
        times.append(time.perf_counter() - start)
        cpu += time.process_time() - before
        calls = len(times)
        if calls == LEAST:  # not at the end, which comes at another step for each backend
            loss = trainer.loss()
        more.fill_(calls < int(most) and (calls < LEAST or sum(times) < float(seconds)))
        dist.broadcast(more, 0)
    dist.barrier()
    if rank == 0:
        shutil.copyfile(counters, f"{folder}/end")
    report(trainer, times, cpu, loss, backend)
    dist.destroy_process_group()


def report(trainer: Trainer, times: list[float], cpu: float, loss: float, backend: str) -> None:
    """Print what rank 0 has to say for all."""
    slowest = torch.tensor(times, dtype=torch.float64)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    wrong = differing(trainer.model, dist.get_rank())
    sums = torch.tensor([cpu, wrong], dtype=torch.float64)
    dist.all_reduce(sums)
    hosts: list[str] = [""] * dist.get_world_size()
    dist.all_gather_object(hosts, socket.gethostname())
    if dist.get_rank() == 0:
        found = {"times": slowest.tolist(), "differing": int(sums[1]), "loss": loss}
        found |= {"cpu": sums[0].item(), "hosts": hosts}
        found |= {"library": f"{backend} of torch {torch.__version__}"}
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
