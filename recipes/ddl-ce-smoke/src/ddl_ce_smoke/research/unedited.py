"""What the programs that name another backend have in common."""

from __future__ import annotations

import torch
import torch.distributed as dist


def check_backend(heard: str) -> None:
    """Check that the process group, if there is one, is ddl's under the name that was asked for."""
    if not dist.is_initialized():
        return  # one rank
    group = dist.group.WORLD
    assert group is not None
    assert dist.get_backend() == heard
    assert group._get_backend(torch.device("cpu")).name() == "ddl"
