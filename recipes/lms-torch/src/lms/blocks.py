"""What autograd keeps under LMS: storages on the device, on the host or on their way, and views."""

from __future__ import annotations

from typing import Protocol

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from lms.counts import use_count
from lms.device import Copy, Device, Offer, Room, flat, holders_of_one, hollow
from lms.errors import InplaceError
from lms.weights import Weight

_SOLE = holders_of_one()


class Owner(Protocol):
    """Whose blocks they are: the engine."""

    device: Device
    iteration: int

    def came_back(self, block: Block) -> None:
        """A block is in memory again."""

    def freed(self, block: Block) -> None:
        """Nothing needs the block any more."""


class Block:
    """One storage that is saved for backward: on the device, on the host, or on its way."""

    def __init__(self, engine: Owner, number: int, tensor: torch.Tensor, version: int) -> None:
        self.engine, self.number, self.version = engine, number, version
        self.iteration = engine.iteration
        self.nbytes = tensor.untyped_storage().nbytes()
        self.original = StorageWeakRef(tensor.untyped_storage())
        self.flat: torch.Tensor | None = flat(tensor)
        self.like = self.flat.new_empty(0)
        self.room: Room | None = None
        self.out: Copy | None = None
        self.back: Copy | None = None
        self.offer: Offer | None = None
        self.used = False

    def is_in(self, cdata: int, version: int) -> bool:
        """Whether its bytes are what a tensor of this version has in this storage."""
        if cdata == self.original.cdata:
            return version == self.version and not self.original.expired()
        if self.flat is None or self.flat.untyped_storage()._cdata != cdata:
            return False
        return version == self.flat._version  # it came back, and is saved again

    @property
    def gone(self) -> bool:
        """Whether there is nothing to send out: it is away, or backward has used it."""
        return self.used or self.flat is None

    @property
    def sent(self) -> bool:
        """Whether the host has the bytes, or will have them."""
        return self.room is not None

    @property
    def held(self) -> bool:
        """Whether the model itself holds the bytes too."""
        return use_count(self.original.cdata) > _SOLE

    @property
    def freed(self) -> bool:
        """Whether the memory is free."""
        return bool(self.original.expired())

    def page_out(self) -> None:
        """Begins the copy to the host."""
        assert self.flat is not None
        self.room, self.out = self.engine.device.page_out(self.flat)

    def release(self) -> None:
        """Gives up the memory on the device. Computing waits for the copy out, if it must."""
        if self.out is not None:
            self.out.join()
        self.flat = self.out = None

    def page_in(self) -> None:
        """Begins the copy back, unless the bytes are still there."""
        if self.offer is not None:
            taken, self.offer = self.offer.withdraw(), None
            if taken is not None:
                self.room, self.flat = taken, None
        if self.flat is not None:
            return
        storage = torch.UntypedStorage._new_with_weak_ptr(self.original.cdata)
        if storage is not None and storage.nbytes() == self.nbytes:
            count = self.nbytes // self.like.element_size()
            self.flat = self.like.new_empty(0).set_(storage, 0, (count,), (1,))
            return
        assert self.room is not None
        self.flat, self.back = self.engine.device.page_in(self.room, self.like)
        self.engine.came_back(self)

    def ready(self) -> torch.Tensor:
        """The bytes on the device. Computing waits for the copy back, if it must."""
        self.page_in()
        if self.back is not None:
            self.back.join()
            self.back = None
        assert self.flat is not None
        return self.flat

    def __del__(self) -> None:
        # Memory that a copy reads or writes must not be used again before the copy is done.
        for copy in (self.out, self.back):
            if copy is not None:
                copy.join()
        self.engine.freed(self)


class Saved:
    """What autograd keeps for a tensor instead of it.

    Attributes:
        kept: what has the bytes; None if `tensor` has them.
    """

    __slots__ = ("dtype", "iteration", "kept", "offset", "shape", "stride", "tensor", "version")

    def __init__(self, tensor: torch.Tensor, kept: Block | Weight | None, iteration: int) -> None:
        self.kept, self.version, self.iteration = kept, tensor._version, iteration
        # Shares the version counter; bytes only if nothing else has them.
        self.tensor = tensor.detach() if kept is None else hollow(tensor)
        self.shape, self.stride = tensor.shape, tensor.stride() if kept else ()
        self.offset, self.dtype = tensor.storage_offset() if kept else 0, tensor.dtype

    def check(self) -> None:
        """Raises InplaceError if the tensor was changed since."""
        if isinstance(self.kept, Weight) and self.kept.replaced:
            raise InplaceError(
                f"the data of a paged parameter of shape {list(self.shape)} was replaced between "
                "forward and backward; assign to `.data` outside, or page it no more"
            )
        if self.tensor._version != self.version:
            raise InplaceError(
                "one of the variables needed for gradient computation has been modified by an "
                f"inplace operation: a {self.dtype} tensor of shape {list(self.shape)} is at "
                f"version {self.tensor._version}; expected version {self.version} instead. Hint: "
                "work on a copy of it, or compute in place only after backward"
            )
