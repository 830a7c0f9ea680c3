"""The worker of bench_ddp: steps of training on a model that is all communication.

WORKER BACKEND BYTES ITERATIONS SECONDS COUNTERS FOLDER STORE [RANK SIZE]

BACKEND is one of torch.distributed, for DistributedDataParallel, or horovod-OPERATIONS.
fsdp-BACKEND shards the model over all ranks, hsdp-BACKEND over SHARDS neighbours, with a replica in
each such group. The gradients are BYTES of float32; two steps to warm up, then ITERATIONS under the
clock, or three when that takes longer than SECONDS. Without RANK and SIZE they are the launcher's.
The file COUNTERS is copied to FOLDER/begin and FOLDER/end around the timed steps. Rank 0 prints one
line of JSON:
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
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Protocol

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(Path(__file__).parents[3]))

from bench.lab.workers.first import be_first

WIDTH = 256
ROWS = 2
LEARNING_RATE = 0.1
SHARDS = 4
"""Ranks that share a replica of hsdp."""
LEAST = 3
"""Timed steps that every run has."""


class Framework(Protocol):
    """What trains on all ranks, and what they tell each other beside it."""

    library: str
    rank: int
    size: int

    def prepare(self, model: nn.Module) -> tuple[nn.Module, torch.optim.Optimizer]:
        """The model and its optimizer, so that a step averages gradients over the ranks."""

    def total(self, tensor: torch.Tensor) -> torch.Tensor:
        """The sum over the ranks."""

    def every(self, what: object) -> list[object]:
        """What each rank says."""

    def first(self, tensor: torch.Tensor) -> torch.Tensor:
        """Rank 0's tensor."""

    def barrier(self) -> None:
        """Wait for all ranks."""

    def close(self) -> None:
        """The end."""


class Torch(Framework):
    """DistributedDataParallel."""

    def __init__(self, backend: str, store: str, rank: int, size: int) -> None:
        self.library = f"{backend} of torch {torch.__version__}"
        self.rank, self.size = rank, size
        limit = timedelta(seconds=300)
        dist.init_process_group(
            backend, init_method=store, rank=rank, world_size=size, timeout=limit
        )

    def prepare(self, model: nn.Module) -> tuple[nn.Module, torch.optim.Optimizer]:
        return DistributedDataParallel(model), sgd(model)

    def total(self, tensor: torch.Tensor) -> torch.Tensor:
        result = tensor.clone()
        dist.all_reduce(result)
        return result

    def every(self, what: object) -> list[object]:
        said: list[object] = [None] * self.size
        dist.all_gather_object(said, what)
        return said

    def first(self, tensor: torch.Tensor) -> torch.Tensor:
        result = tensor.clone()
        dist.broadcast(result, 0)
        return result

    def barrier(self) -> None:
        dist.barrier()

    def close(self) -> None:
        dist.destroy_process_group()


class Sharded(Torch):
    """FSDP2: the model's parameters, gradients and optimizer in shards, layer by layer."""

    def __init__(self, backend: str, store: str, rank: int, size: int, shards: int) -> None:
        super().__init__(backend, store, rank, size)
        shape = (size // shards, shards)
        self.mesh = init_device_mesh("cpu", shape, mesh_dim_names=("replicas", "shards"))
        if shards == size:
            self.mesh = self.mesh["shards"]

    def prepare(self, model: nn.Module) -> tuple[nn.Module, torch.optim.Optimizer]:
        for layer in model.children():
            fully_shard(layer, mesh=self.mesh)
        fully_shard(model, mesh=self.mesh)
        return model, sgd(model)


class Horovod(Framework):
    """Horovod's optimizer."""

    def __init__(self, operations: str) -> None:
        os.environ["HOROVOD_CPU_OPERATIONS"] = operations.upper()
        import horovod.torch as hvd

        hvd.init()
        self.hvd = hvd
        self.library = f"Horovod {version('horovod')} on {operations}"
        self.rank, self.size = hvd.rank(), hvd.size()

    def prepare(self, model: nn.Module) -> tuple[nn.Module, torch.optim.Optimizer]:
        return model, self.hvd.DistributedOptimizer(sgd(model), model.named_parameters())

    def total(self, tensor: torch.Tensor) -> torch.Tensor:
        return self.hvd.allreduce(tensor, op=self.hvd.Sum, name="total")

    def every(self, what: object) -> list[object]:
        return self.hvd.allgather_object(what, name="every")

    def first(self, tensor: torch.Tensor) -> torch.Tensor:
        return self.hvd.broadcast(tensor, 0, name="first")

    def barrier(self) -> None:
        self.hvd.barrier()

    def close(self) -> None:
        self.hvd.shutdown()


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    """The optimizer, before it is distributed."""
    return torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)


def whole(weight: torch.Tensor) -> torch.Tensor:
    """A weight with the shards of all ranks."""
    return weight.full_tensor() if isinstance(weight, DTensor) else weight


def framework_of(backend: str, store: str, rank: int, size: int) -> Framework:
    """What a backend's name asks for."""
    kind, _, rest = backend.partition("-")
    if kind == "horovod":
        return Horovod(rest)
    if kind in ("fsdp", "hsdp"):
        return Sharded(rest, store, rank, size, SHARDS if kind == "hsdp" else size)
    return Torch(backend, store, rank, size)


def make_model(nbytes: int) -> nn.Module:
    """Square layers, so many that their gradients are as near to BYTES as can be."""
    torch.manual_seed(1)
    layers = max(1, round(nbytes / (4 * WIDTH * WIDTH)))
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(layers)))
    for weight in model.parameters():
        nn.init.orthogonal_(weight)  # by torch's default hardly a gradient reaches the first layers
    return model


class Trainer:
    """A model, its optimizer, and this rank's data."""

    def __init__(self, nbytes: int, framework: Framework) -> None:
        self.framework = framework
        self.model, self.optimizer = framework.prepare(make_model(nbytes))
        torch.manual_seed(100 + framework.rank)
        self.inputs, self.targets = torch.randn(ROWS, WIDTH), torch.randn(ROWS, WIDTH)

    def step(self) -> None:
        self.optimizer.zero_grad()
        nn.functional.mse_loss(self.model(self.inputs), self.targets).backward()
        self.optimizer.step()

    def loss(self) -> float:
        """The mean over all ranks' data."""
        with torch.no_grad():
            mine = nn.functional.mse_loss(self.model(self.inputs), self.targets)
        return self.framework.total(mine).item() / self.framework.size

    def differing(self) -> int:
        """This rank's weights that are not rank 0's."""
        weights = [whole(weight.detach()) for weight in self.model.parameters()]
        pairs = [(weight, self.framework.first(weight)) for weight in weights]
        return sum(int((mine != first).sum()) for mine, first in pairs)


def main() -> None:
    """Warm up, measure, compare, report."""
    backend, nbytes, most, seconds, counters, folder, store, *who = sys.argv[1:]
    rank, size = (int(word) for word in who or (os.environ["PMI_RANK"], os.environ["PMI_SIZE"]))
    torch.set_num_threads(1)
    framework = framework_of(backend, store, rank, size)
    trainer = Trainer(int(nbytes), framework)
    trainer.step()  # DDP makes its buckets anew after the first
    trainer.step()
    be_first()
    times: list[float] = []
    cpu, loss, more = 0.0, 0.0, True
    while more:
        framework.barrier()
        if not times:
            if rank == 0:
                shutil.copyfile(counters, f"{folder}/begin")
            framework.barrier()
        before, start = time.process_time(), time.perf_counter()
        trainer.step()
        times.append(time.perf_counter() - start)
        cpu += time.process_time() - before
        calls = len(times)
        if calls == LEAST:  # not at the end, which comes at another step for each backend
            loss = trainer.loss()
        wanted = calls < int(most) and (calls < LEAST or sum(times) < float(seconds))
        more = bool(framework.first(torch.tensor([float(wanted)])).item())
    framework.barrier()
    if rank == 0:
        shutil.copyfile(counters, f"{folder}/end")
    report(trainer, times, cpu, loss)
    framework.close()


def report(trainer: Trainer, times: list[float], cpu: float, loss: float) -> None:
    """Print what rank 0 has to say for all."""
    said = trainer.framework.every((times, cpu, trainer.differing(), socket.gethostname()))
    every_times, cpus, differing, hosts = zip(*said, strict=True)
    if trainer.framework.rank == 0:
        found: dict[str, object] = {"times": [max(step) for step in zip(*every_times, strict=True)]}
        found |= {"differing": sum(differing), "loss": loss, "cpu": sum(cpus), "hosts": hosts}
        found |= {"library": trainer.framework.library}
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
