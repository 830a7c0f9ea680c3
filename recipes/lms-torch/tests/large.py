"""A model of 20 GiB and more of demand, for planning without memory."""

from collections.abc import Callable

import torch
from torch import nn


def make_step() -> Callable[[], None]:
    layers = [nn.Sequential(nn.Linear(8192, 8192), nn.GELU()) for _ in range(8)]
    model, data = nn.Sequential(*layers), torch.randn(32768, 8192)
    optimizer = torch.optim.SGD(model.parameters())

    def step() -> None:
        optimizer.zero_grad()
        model(data).square().mean().backward()
        optimizer.step()

    return step
