"""Small programs on one parameter, and their gradients under a limit beside those of in-core."""

from __future__ import annotations

from collections.abc import Callable

import lms
import torch
from models import SPEED
from torch import Tensor, nn

SIDE = 64

#: Given the only parameter, a scalar to call backward on.
Program = Callable[[Tensor], Tensor]


def gradient(
    program: Program,
    limit: int | None,
    steps: int = 3,
    device: lms.SimulatedDevice | None = None,
    smallest: int = 1,
) -> tuple[list[Tensor], int]:
    """Of each step, and the most bytes that the device had in use."""
    generator = torch.Generator().manual_seed(0)
    weight = nn.Parameter(torch.randn(SIDE, SIDE, generator=generator))
    optimizer = torch.optim.SGD([weight], 0.1)
    device, found = device or lms.SimulatedDevice("1GiB", SPEED), list[Tensor]()

    def train() -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            program(weight).backward()
            assert weight.grad is not None
            found.append(weight.grad.clone())
            optimizer.step()

    with device:
        if limit is None:
            train()
        else:
            with lms.LMS(limit, smallest=smallest, device=device):
                train()
    return found, device.highest


def compare(program: Program, *shares: float) -> None:
    """The bits of in-core, with memory to spare and at shares of what in-core needs."""
    plain, peak = gradient(program, None)
    for limit in [1 << 30, *(int(share * peak) for share in shares)]:
        try:
            under, _ = gradient(program, limit)
        except lms.NoPlanError:
            assert limit < peak
            continue
        assert all(map(torch.equal, plain, under)), limit
