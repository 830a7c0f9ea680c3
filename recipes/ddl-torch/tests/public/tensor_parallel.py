"""As the examples of tensor and sequence parallelism: a mesh first, no process group by hand."""

import os

import torch
import torch.nn as nn
from numbers_of import told
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)


class Toy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(10)
        self.net1 = nn.Linear(10, 32)
        self.net2 = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net2(torch.relu(self.net1(self.norm(x))))


mesh = init_device_mesh("cpu", (int(os.environ["WORLD_SIZE"]),), mesh_dim_names=("tp",))
torch.manual_seed(0)
plan = {
    "norm": SequenceParallel(),
    "net1": ColwiseParallel(input_layouts=Shard(1)),
    "net2": RowwiseParallel(output_layouts=Replicate()),
}
model = parallelize_module(Toy(), mesh, plan)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.25, foreach=False)
from torch.distributed.tensor import distribute_tensor  # noqa: E402

for _ in range(3):
    inputs = distribute_tensor(torch.rand(4, 8, 10), mesh, [Shard(1)])
    model(inputs).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
told([p.full_tensor() if hasattr(p, "full_tensor") else p for p in model.parameters()])
