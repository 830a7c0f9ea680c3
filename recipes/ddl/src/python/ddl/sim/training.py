"""The scaling of data-parallel training when an allreduce takes a given time."""

from __future__ import annotations

from dataclasses import dataclass

BACKWARD = 2 / 3
"""The share of an iteration's computing in which gradients come to be: a backward pass computes
about twice as much as a forward one."""


@dataclass(frozen=True)
class Training:
    """One model on one GPU.

    Attributes:
        gradient: bytes that all ranks sum in each iteration.
        images: the batch of one GPU.
        images_per_second: of one GPU alone.
    """

    gradient: int
    images: int
    images_per_second: float

    @property
    def compute(self) -> float:
        """Seconds of computing in an iteration."""
        return self.images / self.images_per_second


def efficiency(training: Training, allreduce: float, overlap: bool) -> float:
    """Throughput by that of as many GPUs alone.

    With overlap, the sum runs beside the backward pass. The part that does not fit is waited for,
    and at least the sum of the last tenth of the gradients, which come when the pass is over.
    """
    waits = allreduce
    if overlap:
        waits = max(0.1 * allreduce, allreduce - BACKWARD * training.compute)
    return training.compute / (training.compute + waits)
