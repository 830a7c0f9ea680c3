"""FSDP2 with replicas of shards: a mesh of two dimensions, made before any process group."""

import os

import torch
from numbers_of import told
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

size = int(os.environ["WORLD_SIZE"])
mesh = init_device_mesh("cpu", (size, 1), mesh_dim_names=("replicate", "shard"))
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
for layer in (model[0], model[2], model):
    fully_shard(layer, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
torch.manual_seed(int(os.environ["RANK"]))
for _ in range(3):
    model(torch.randn(4, 8)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
told([parameter.full_tensor() for parameter in model.parameters()])
