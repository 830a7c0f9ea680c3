"""Models whose weights are sharded over ranks, by torch.distributed.checkpoint.

Every rank writes its shards, and any number of ranks can read them.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

from ddl.checkpoint.errors import CheckpointError
from ddl.checkpoint.files import Entry, digest_file
from ddl.checkpoint.ranks import Ranks, collect
from ddl.checkpoint.state import Objects


def is_sharded(objects: Objects) -> bool:
    """Whether a model among the objects has weights that are sharded."""
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    models = [thing for thing in objects.values() if isinstance(thing, torch.nn.Module)]
    weights = (weight for model in models for weight in model.parameters())
    parts = (part for model in models for part in model.modules())
    fsdp, tensor = sys.modules.get("torch.distributed.fsdp"), "torch.distributed.tensor"
    if fsdp and any(isinstance(part, fsdp.FullyShardedDataParallel) for part in parts):
        return True
    return tensor in sys.modules and any(
        isinstance(weight, torch.distributed.tensor.DTensor) for weight in weights
    )


def split(objects: Objects) -> tuple[dict[str, Any], dict[str, Any]]:
    """Models and optimizers, which are saved in shards, and the other objects."""
    import torch

    kinds = (torch.nn.Module, torch.optim.Optimizer)
    shards = {name: thing for name, thing in objects.items() if isinstance(thing, kinds)}
    return shards, {name: thing for name, thing in objects.items() if name not in shards}


def save(path: Path, objects: Objects, ranks: Ranks) -> None:
    """Write the shards into a folder that is there; collective.

    Raises:
        CheckpointError: a rank could not.
    """
    import torch.distributed.checkpoint as dcp

    states: dict[str, Any] = {}
    collect(ranks, lambda: states.update(_states(objects)))
    writer = dcp.FileSystemWriter(path, single_file_per_rank=True, sync_files=True)
    trouble: Exception | None = None
    try:
        dcp.save(states, storage_writer=writer, process_group=getattr(ranks, "group", None))
    except dcp.api.CheckpointException as error:  # with the errors of each rank
        causes = [cause for cause, _ in error.failures.values()]
        system = next((cause for cause in causes if isinstance(cause, OSError)), None)
        free = shutil.disk_usage(path).free >> 20  # torch's own words may hide a full disk
        trouble = CheckpointError(
            f"{path}: it cannot be written ({system or causes[0]}); {free} MiB are free there"
        )
    except Exception as error:  # after which a rank has left the others
        trouble = error

    def tell() -> None:
        if trouble:
            raise trouble

    collect(ranks, tell)


def written(path: Path, rank: int) -> dict[str, Entry]:
    """Make this rank's files durable: their names, sizes and digests."""
    mine = sorted(path.glob(f"__{rank}_*.distcp")) + ([path / ".metadata"] if rank == 0 else [])
    return {file.name: digest_file(file) for file in mine}


def load(path: Path, objects: Objects, ranks: Ranks) -> None:
    """Give the objects their states; collective.

    Raises:
        CheckpointError: the checkpoint is of other objects.
    """
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint import state_dict

    states = _states(objects)
    try:
        reader = dcp.FileSystemReader(path)
        dcp.load(states, storage_reader=reader, process_group=getattr(ranks, "group", None))
    except dcp.api.CheckpointException as error:
        cause = next(iter(error.failures.values()))[0]
        raise CheckpointError(
            f"{path}: it is of another model or optimizer ({cause}); give another folder"
        ) from None
    for name, model in _models(objects).items():
        state_dict.set_model_state_dict(model, states[name])
    for name, optimizer in _optimizers(objects).items():
        model = _model_of(name, optimizer, objects)
        state_dict.set_optimizer_state_dict(model, optimizer, states[name])


def _states(objects: Objects) -> dict[str, Any]:
    from torch.distributed.checkpoint import state_dict

    states = {
        name: state_dict.get_model_state_dict(model) for name, model in _models(objects).items()
    }
    for name, optimizer in _optimizers(objects).items():
        model = _model_of(name, optimizer, objects)
        states[name] = state_dict.get_optimizer_state_dict(model, optimizer)
    return states


def _models(objects: Objects) -> dict[str, Any]:
    import torch

    return {name: it for name, it in objects.items() if isinstance(it, torch.nn.Module)}


def _optimizers(objects: Objects) -> dict[str, Any]:
    import torch

    return {name: it for name, it in objects.items() if isinstance(it, torch.optim.Optimizer)}


def _model_of(name: str, optimizer: Any, objects: Objects) -> Any:
    weights = {id(weight) for group in optimizer.param_groups for weight in group["params"]}
    for model in _models(objects).values():
        if weights <= {id(weight) for weight in model.parameters()}:
            return model
    raise CheckpointError(f"{name}: it updates weights of no model that is saved; save that, too")
