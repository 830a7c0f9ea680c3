"""As the example of FSDP with tensor parallelism: a mesh of two dimensions, by names."""

import os

import torch
import torch.nn as nn
from numbers_of import told
from torch.distributed import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

size = int(os.environ["WORLD_SIZE"])
mesh = init_device_mesh("cpu", (1, size), mesh_dim_names=("dp", "tp"))
assert mesh["tp"].get_local_rank() == int(os.environ["RANK"])
torch.manual_seed(0)
block = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8))
parallelize_module(block, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
fully_shard(block, mesh=mesh["dp"])
optimizer = torch.optim.SGD(block.parameters(), lr=0.1)
for _ in range(3):
    block(torch.rand(4, 8)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
told([parameter.full_tensor() for parameter in block.parameters()])
