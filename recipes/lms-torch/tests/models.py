"""Small models and the training steps that the tests compare: in-core and under LMS."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import lms
import torch
from torch import Tensor, nn

#: Slow arithmetic, so that small models leave time for copies to hide in.
SPEED = lms.Speed(arithmetic=2e12, memory=200e9, d2h=50e9, h2d=50e9, launch=1e-6)
#: The same with a bus so slow that copies do not hide.
SLOW_BUS = lms.Speed(arithmetic=2e12, memory=200e9, d2h=4e9, h2d=4e9, launch=1e-6)


@dataclass
class Run:
    """What some steps of training gave.

    Attributes:
        gradients: of each step, by parameter; `losses` likewise.
        seconds: of each step on the device's clock.
        peaks: bytes of each step at the highest.
    """

    gradients: list[list[Tensor]] = field(default_factory=list)
    losses: list[Tensor] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    peaks: list[int] = field(default_factory=list)
    report: lms.Report | None = None


Step = Callable[[], Tensor]


def mlp(layers: int = 8, width: int = 64) -> nn.Sequential:
    """Linear layers with what is saved by view, output and input between them."""
    torch.manual_seed(0)
    parts: list[nn.Module] = []
    for _ in range(layers):
        parts += [nn.Linear(width, width * 4), nn.GELU(), nn.Linear(width * 4, width)]
        parts += [nn.LayerNorm(width), nn.Tanh()]
    return nn.Sequential(*parts)


def batch(rows: int = 512, width: int = 64) -> Tensor:
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(1))


def mlp_step() -> tuple[nn.Module, Step]:
    model, data = mlp(), batch()

    def step() -> Tensor:
        loss = model(data).square().mean()
        loss.backward()
        return loss.detach()

    return model, step


def train(
    model: nn.Module,
    step: Step,
    *,
    limit: int | None = None,
    steps: int = 4,
    optimizer: torch.optim.Optimizer | None = None,
    device: lms.SimulatedDevice | None = None,
    page: bool = False,
    recompute_operations: bool = False,
) -> Run:
    """Trains on a simulated device: `step` does forward and backward and returns the loss.

    Args:
        page: whether parameters are paged, and the optimizer's state.
    """
    device = device or lms.SimulatedDevice("64GiB", SPEED)
    optimizer = optimizer or torch.optim.Adam(model.parameters())
    run = Run()

    def all_steps() -> None:
        for _ in range(steps):
            device.highest, start = device.used, device.clock
            optimizer.zero_grad()
            loss = step()
            with device.aside():
                run.losses.append(loss.detach().clone())
                run.gradients.append(
                    [p.grad.clone() for p in model.parameters() if p.grad is not None]
                )
            del loss
            optimizer.step()
            run.seconds.append(device.clock - start)
            run.peaks.append(device.highest)

    if page:
        lms.page_optimizer(optimizer, bucket="40KiB", smallest=1024, device=device)
        paged = lms.page_parameters(model, smallest=1024)
    with device:
        if limit is None:
            all_steps()
        else:
            with lms.LMS(
                limit,
                smallest=1024,
                device=device,
                recompute_operations=recompute_operations,
            ) as support:
                all_steps()
                run.report = support.report()
    if page:
        lms.keep_parameters(paged)
    return run


def equal(first: Run, second: Run) -> bool:
    """Whether losses and gradients are the same to the bit, in every step."""
    return all(map(torch.equal, first.losses, second.losses)) and all(
        len(a) == len(b) > 0 and all(map(torch.equal, a, b))
        for a, b in zip(first.gradients, second.gradients, strict=True)
    )


def compare(
    make: Callable[[], tuple[nn.Module, Step]], share: float, steps: int = 4
) -> tuple[Run, Run]:
    """In-core, then under LMS with `share` of that memory: the same bits, the limit kept."""
    plain = train(*make(), steps=steps)
    limit = int(share * max(plain.peaks))
    under = train(*make(), limit=limit, steps=steps)
    assert equal(plain, under)
    assert max(under.peaks) <= limit
    return plain, under
