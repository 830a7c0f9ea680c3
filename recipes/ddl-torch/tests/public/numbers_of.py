"""What each program of this folder ends with: its numbers, printed by rank 0."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable

import torch
import torch.distributed as dist


def told(values: Iterable[torch.Tensor]) -> None:
    """Print all values of rank 0, and whose the process group really is."""
    group = dist.group.WORLD
    assert group is not None
    name = group._get_backend(torch.device("cpu")).name()
    if os.environ.get("RANK", "0") == "0":
        flat = torch.cat([value.detach().flatten().double().cpu() for value in values])
        print(f"numbers of {name} {json.dumps(flat.tolist())}", flush=True)
