"""Run by ddlrun: FSDP2 on GPUs learns what one process with all the data learns."""

from __future__ import annotations

import ddl_torch  # noqa: F401  (the backend)
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

dist.init_process_group("ddl")
rank, size = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(rank % torch.cuda.device_count())


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 10), nn.Tanh(), nn.Linear(10, 3)).double()


def batch(of: int) -> torch.Tensor:
    return torch.randn(4, 6, generator=torch.Generator().manual_seed(of)).double()


sharded, alone = net().cuda(), net()
mesh = init_device_mesh("cuda", (size,))
fully_shard(sharded[0], mesh=mesh)
fully_shard(sharded, mesh=mesh)
data = torch.cat([batch(each) for each in range(size)])
for model, given in ((sharded, batch(rank).cuda()), (alone, data)):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(given).square().mean().backward()
        optimizer.step()
for ours, theirs in zip(sharded.parameters(), alone.parameters(), strict=True):
    assert isinstance(ours, DTensor)
    assert ours.device.type == "cuda"
    torch.testing.assert_close(ours.full_tensor().cpu(), theirs)
dist.destroy_process_group()
print("all well")
