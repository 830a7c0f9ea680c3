"""What LMS needs of a device: its memory, its clock, and copies that run beside computing."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from lms.counts import use_count
from lms.plan import Rates


class Copy(Protocol):
    """A copy that is under way, or done."""

    def join(self) -> None:
        """Makes all computing that is asked for from now on wait until the copy is done."""


class Room(Protocol):
    """A place in the host's memory. It is given back when nothing refers to it any more."""


class Offer(Protocol):
    """A storage that the allocator may take, until nothing refers to this any more."""

    def withdraw(self) -> Room | None:
        """Takes it back; where its bytes are now if it was taken, None if it is still there."""


class Device(Protocol):
    """A device with a memory of its own, one compute queue and a copy engine for each direction.

    Memory is counted in the order of the program, as the caching allocator of CUDA does, not by
    when the device gets there: so it is the same in each run.
    """

    rates: Rates

    def owns(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor's bytes lie in this device's memory."""

    def capacity(self) -> int:
        """Bytes that a program may use when no limit is given."""

    def cap(self, limit: int) -> int:
        """Forbids the program more than `limit` bytes; returns how many of them may be planned."""

    def uncap(self) -> None:
        """Takes the prohibition back."""

    def memory(self) -> int:
        """Bytes in use."""

    def take_peak(self) -> int:
        """The most bytes in use since this was last called."""

    def short_of(self, error: torch.OutOfMemoryError) -> int:
        """Bytes that were missing, at least, when `error` was raised."""

    def page_out(self, flat: torch.Tensor) -> tuple[Room, Copy]:
        """Begins to copy a whole storage (flat) to the host, after all computing so far."""

    def page_in(self, room: Any, like: torch.Tensor) -> tuple[torch.Tensor, Copy]:
        """Begins to copy back into new memory.

        Args:
            like: a tensor without bytes that has the dtype and device of what was paged out.

        Returns:
            A flat tensor of the same bytes, and the copy to join before it is used.
        """

    def vacate(self, tensor: torch.Tensor) -> None:
        """Gives up the memory of a tensor's storage, which stays the tensor's."""

    def refill(self, room: Any, tensor: torch.Tensor, nbytes: int) -> Copy:
        """Begins to copy back into a storage that was vacated."""

    def offer(self, flat: torch.Tensor) -> Offer | None:
        """Lets the allocator take a storage that stays, should it run short, if it can."""

    def aside(self) -> AbstractContextManager[None]:
        """What runs inside is LMS's own and no part of the program."""

    def stamp(self) -> Any:
        """A moment in the compute queue."""

    def seconds(self, first: Any, second: Any) -> float:
        """From one moment to another. Waits for the device to get there."""


def flat(tensor: torch.Tensor) -> torch.Tensor:
    """The whole storage of `tensor` as one dimension of its dtype, sharing the memory."""
    count = tensor.untyped_storage().nbytes() // tensor.element_size()
    return tensor.detach().as_strided((count,), (1,), 0)


def alone(tensor: torch.Tensor) -> torch.Tensor:
    """As `flat`, but with a version of its own, and no other tensor behind it."""
    storage = tensor.untyped_storage()
    count = storage.nbytes() // tensor.element_size()
    return tensor.new_empty(0).set_(storage, 0, (count,), (1,))


def regain(tensor: torch.Tensor, nbytes: int) -> torch.Tensor:
    """Gives a vacated storage its memory again; all of it, as `alone`."""
    tensor.untyped_storage().resize_(nbytes)
    return alone(tensor)


def hollow(tensor: torch.Tensor) -> torch.Tensor:
    """A detached tensor without bytes that shares the version counter of `tensor`."""
    shell = tensor.detach()
    shell.data = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return shell


def owners_of_one() -> int:
    """What torch counts when only a `flat` holds a storage: its own references come on top."""
    with torch.no_grad():
        only = flat(torch.empty(1))
    return use_count(StorageWeakRef(only.untyped_storage()).cdata)
