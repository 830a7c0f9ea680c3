"""A small model, its data and the oracle: one process that trains on the batches of all ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from horovod import torch as hvd
from hvd_frames import Frame
from hvd_harness import RANK, RANKS, same
from torch import Tensor, nn

STEPS = 4
BATCH = 6


def model() -> nn.Module:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(7, 9), nn.Tanh(), nn.Linear(9, 3)).double()


def batch(step: int, rank: int) -> Tensor:
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(BATCH, 7, generator=generator, dtype=torch.float64)


def whole_batch(step: int) -> Tensor:
    return torch.cat([batch(step, rank) for rank in RANKS])


def loss(net: nn.Module, inputs: Tensor) -> Tensor:
    return net(inputs).square().mean()


def weights(net: nn.Module) -> np.ndarray:
    return torch.cat([p.detach().double().flatten() for p in net.parameters()]).numpy()


def alone(make: Callable[[Any], torch.optim.Optimizer], steps: int = STEPS) -> np.ndarray:
    """The weights after one process has trained on everyone's batches."""
    net = model()
    optimizer = make(net.parameters())
    for step in range(steps):
        optimizer.zero_grad()
        loss(net, whole_batch(step)).backward()
        optimizer.step()
    return weights(net)


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.01)


def together(
    make: Callable[[Any], torch.optim.Optimizer], named: bool = True, **options: Any
) -> np.ndarray:
    """The weights after every rank has trained on its own batches."""
    net = model()
    names = net.named_parameters() if named else None
    optimizer = hvd.DistributedOptimizer(make(net.parameters()), names, **options)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss(net, batch(step, RANK)).backward()
        optimizer.step()
    return weights(net)


def alike(f: Frame, mine: np.ndarray) -> None:
    """Fails unless all ranks have the same weights, bit for bit."""
    for other in hvd.allgather_object(mine, name=f.name("weights")):
        same(other, mine, "weights of two ranks")
