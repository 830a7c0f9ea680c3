"""torch.distributed.checkpoint: what was sharded comes back, also in other shards."""

import copy
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from harness import FSDP_ON_CPUS, RANK, SIZE, case, case_since, given, same
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor


@contextmanager
def shared_folder() -> Iterator[Path]:
    """One for all ranks."""
    names = [tempfile.mkdtemp() if RANK == 0 else None]
    dist.broadcast_object_list(names, 0)
    yield Path(names[0])
    dist.barrier()
    if RANK == 0:
        shutil.rmtree(names[0])


def net(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(5, 9), nn.Tanh(), nn.Linear(9, 3))


def trained(seed: int, steps: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    """A sharded model and its optimizer after some steps."""
    model = net(seed)
    mesh = init_device_mesh("cpu", (SIZE,))
    fully_shard(model[0], mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for _ in range(steps):
        model(given(RANK, 4, 5)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model, optimizer


def whole(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.full_tensor() for name, tensor in model.state_dict().items()}


@case_since(*FSDP_ON_CPUS)
def checkpoints_of_fsdp() -> None:
    """Another model of the same shape goes on as the first one would have."""
    with shared_folder() as folder:
        model, optimizer = trained(1, 2)
        states = get_state_dict(model, optimizer)
        dcp.save({"model": states[0], "optimizer": states[1]}, checkpoint_id=folder)
        other, fresh = trained(2, 1)
        into = dict(zip(("model", "optimizer"), get_state_dict(other, fresh), strict=True))
        dcp.load(into, checkpoint_id=folder)
        set_state_dict(
            other,
            fresh,
            model_state_dict=into["model"],
            optim_state_dict=into["optimizer"],
        )
        for pair in ((model, optimizer), (other, fresh)):
            pair[0](given(RANK, 4, 5)).square().mean().backward()
            pair[1].step()
        for name, tensor in whole(model).items():
            same(whole(other)[name].detach(), tensor.detach())


@case
def checkpoints_come_back_in_other_placements() -> None:
    mesh = init_device_mesh("cpu", (SIZE,))
    square = init_device_mesh("cpu", (2, 2) if SIZE == 4 else (1, SIZE))
    tensor = given(5, 7, 6, top=100)
    with shared_folder() as folder:
        saved = {
            "rows": distribute_tensor(tensor, mesh, [Shard(0)]),
            "columns": distribute_tensor(tensor, square, [Shard(1), Shard(0)]),
            "plain": tensor,
            "words": {"steps": 7, "rank 0 says": "yes"},
        }
        dcp.save(saved, checkpoint_id=folder)
        blank = torch.zeros(7, 6)
        loaded = {
            "rows": distribute_tensor(blank, square, [Shard(0), Shard(1)]),
            "columns": distribute_tensor(blank.clone(), mesh, [Replicate()]),
            "plain": torch.zeros(7, 6),
            "words": {"steps": 0, "rank 0 says": ""},
        }
        dcp.load(loaded, checkpoint_id=folder)
        for name in ("rows", "columns"):
            same(loaded[name].full_tensor(), tensor)
        same(loaded["plain"], tensor)
        assert loaded["words"] == saved["words"]


@case_since(*FSDP_ON_CPUS)
def checkpoints_are_written_in_the_background() -> None:
    """In a thread of its own, on a group of its own, while the model goes on."""
    group = dist.new_group()
    with shared_folder() as folder:
        model, optimizer = trained(3, 1)
        before = copy.deepcopy({name: t.detach() for name, t in whole(model).items()})
        pending = dcp.async_save(
            {"model": get_model_state_dict(model)}, checkpoint_id=folder, process_group=group
        )
        for _ in range(3):
            model(given(RANK, 4, 5)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        pending.result()
        other, _ = trained(4, 0)
        into = {"model": get_model_state_dict(other)}
        dcp.load(into, checkpoint_id=folder)
        set_model_state_dict(other, into["model"])
        for name, tensor in before.items():
            same(whole(other)[name].detach(), tensor)
            assert not torch.equal(whole(model)[name], tensor)
    dist.destroy_process_group(group)


@case_since(*FSDP_ON_CPUS)
def whole_state_dicts() -> None:
    """Gathered on the first rank, and given out from it."""
    model, _ = trained(5, 1)
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    state = get_model_state_dict(model, options=options)
    assert bool(state) == (RANK == 0)
    other, _ = trained(6, 0)
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(other, state, options=options)
    for name, tensor in whole(model).items():
        same(whole(other)[name].detach(), tensor.detach())


@case_since(2, 7)  # 2.6 pickles an exception with its traceback, which Python 3.13 refuses
def a_failed_save_is_an_error_on_all_ranks() -> None:
    with shared_folder() as folder:
        (folder / "file").write_text("in the way")
        caught = None
        try:
            dcp.save({"tensor": given(0, 3)}, checkpoint_id=os.fspath(folder / "file"))
        except dcp.api.CheckpointException as error:
            caught = error
        assert caught is not None, "it was saved into a file's folder"
        assert caught.failures
    dist.barrier()
