"""Run by ddlrun, with other numbers of ranks on the same folder: FSDP training that goes on.

Usage: reshard.py FOLDER STEPS; loads FOLDER if something is in it, takes STEPS steps on the same
whole batch whatever the number of ranks, saves, and prints the losses.
"""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

BATCH = 12


def begin() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """The model, its inputs and its targets: the same in every process."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(5, 9), nn.Tanh(), nn.Linear(9, 3)).double()
    return model, torch.randn(BATCH, 5).double(), torch.randn(BATCH, 3).double()


def main() -> None:
    folder, steps = Path(sys.argv[1]), int(sys.argv[2])
    dist.init_process_group("ddl")
    rank, size = dist.get_rank(), dist.get_world_size()
    model, inputs, targets = begin()
    mesh = init_device_mesh("cpu", (size,))
    fully_shard(model[0], mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    if any(folder.iterdir()):
        state = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer), strict=True))
        dcp.load(state, checkpoint_id=folder)
        set_state_dict(
            model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"]
        )
    mine = slice(BATCH // size * rank, BATCH // size * (rank + 1))
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs[mine]), targets[mine])
        loss.backward()
        optimizer.step()
        mean = loss.detach()
        dist.all_reduce(mean, dist.ReduceOp.AVG)
        if rank == 0:
            print("loss", mean.item(), flush=True)
    state = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer), strict=True))
    dcp.save(state, checkpoint_id=folder)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
