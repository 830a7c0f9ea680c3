"""The interface of a device: its memory, its clock, and copies that run beside computing."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import torch


@dataclass(frozen=True)
class TransferRates:
    """Bytes per second between device and host, each way, and the latency of a copy."""

    d2h: float
    h2d: float
    latency: float = 10e-6

    def seconds_out(self, nbytes: int) -> float:
        """Seconds of a copy to the host."""
        return self.latency + nbytes / self.d2h

    def seconds_back(self, nbytes: int) -> float:
        """Seconds of a copy to the device."""
        return self.latency + nbytes / self.h2d


class Copy(Protocol):
    """A copy that is under way, or done."""

    def join(self, target: torch.Tensor | None = None) -> None:
        """Makes all computing that is asked for from now on wait until the copy is done.

        To be called before each use of a copy to the device: there may be several compute queues.

        Args:
            target: the memory that was copied to, which is about to be used.
        """


class HostMemory(Protocol):
    """A slot in the host's memory, which is given back when nothing refers to it any more."""


class AllocatorOffer(Protocol):
    """A storage that the allocator may take, until nothing refers to this any more."""

    def withdraw(self) -> HostMemory | None:
        """Takes it back.

        Returns:
            The slot with its bytes if the allocator took the storage, None if it is still there.
        """


class Device(Protocol):
    """A device with a memory of its own, one compute queue and a copy engine for each direction.

    Memory is counted in the order of the program, as the caching allocator of CUDA does, not by
    when the device gets there: so it is the same in each run.
    """

    rates: TransferRates

    def owns(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor's bytes lie in this device's memory."""

    def capacity(self) -> int:
        """Bytes that a program may use when no limit is given."""

    def cap(self, limit: int) -> int:
        """Forbids the program more than `limit` bytes; returns how many of them may be planned."""

    def limit_for(self, planned: int) -> int:
        """The limit of which `cap` says that so many bytes may be planned, or a few more."""

    def uncap(self) -> None:
        """Takes the prohibition back."""

    def memory(self) -> int:
        """Bytes in use."""

    def take_peak(self) -> int:
        """The most bytes in use since this was last called."""

    def short_of(self, error: torch.OutOfMemoryError) -> int:
        """Bytes that were missing, at least, when `error` was raised."""

    def page_out(self, flat: torch.Tensor) -> tuple[HostMemory, Copy]:
        """Begins to copy a whole storage (flat) to the host, after all computing so far.

        Raises:
            HostMemoryError: there is no memory for it.
        """

    def page_in(self, slot: Any, like: torch.Tensor) -> tuple[torch.Tensor, Copy]:
        """Begins to copy back into new memory.

        Args:
            slot: the host memory that `page_out` returned.
            like: a tensor without bytes that has the dtype and device of the storage.

        Returns:
            A flat tensor of the same bytes, and the copy to join before it is used.
        """

    def vacate(self, tensor: torch.Tensor) -> None:
        """Gives up the memory of a tensor's storage, which stays the tensor's."""

    def refill(self, slot: Any, tensor: torch.Tensor, nbytes: int) -> Copy:
        """Begins to copy back into a storage that was vacated."""

    def offer(self, flat: torch.Tensor) -> AllocatorOffer | None:
        """Lets the allocator take a storage that stays, should it run short, if it can."""

    def aside(self) -> AbstractContextManager[None]:
        """The code inside is LMS's own and no part of the program."""

    def computing(self) -> AbstractContextManager[None]:
        """The code inside computes, though it is LMS that asks for it."""

    def stamp(self) -> Any:
        """A moment in the compute queue."""

    def seconds(self, first: Any, second: Any) -> float:
        """The time from one moment to another. Waits for the device to get there."""
