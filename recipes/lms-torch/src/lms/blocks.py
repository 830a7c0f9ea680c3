"""What autograd keeps under LMS: storages on the device, on the host or on their way, and views."""

from __future__ import annotations

from typing import Protocol

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils.weak import TensorWeakRef

from lms.counts import holders
from lms.device import Copy, Device, Offer, Room, flat, hollow
from lms.errors import InplaceError
from lms.managed import is_plain
from lms.weights import Weight


class Owner(Protocol):
    """Whose blocks they are: the engine."""

    device: Device
    iteration: int

    def came_back(self, block: Block) -> None:
        """A block is in memory again."""

    def freed(self, block: Block) -> None:
        """Nothing needs the block any more."""


class Block:
    """One storage that is saved for backward: on the device, on the host, or on its way.

    Its bytes may change as long as the program holds it: through `.data`, `unsafe_chunk`, NumPy and
    the like, no version tells that. As backward must see them as they are in the end, they are
    copied once nothing but LMS holds the storage, and not before.
    """

    def __init__(self, engine: Owner, number: int, tensor: torch.Tensor) -> None:
        self.engine, self.number = engine, number
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

    def is_in(self, storage: torch.UntypedStorage) -> bool:
        """Whether it is this storage, or has come back into it, and the size is the same."""
        return (
            self.flat is not None
            and self.flat.untyped_storage()._cdata == storage._cdata
            and storage.nbytes() == self.nbytes
        )

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
        """Whether the program holds the bytes too, or has given the storage another size."""
        assert self.flat is not None
        return holders(self.flat) > _SOLE or self.flat.untyped_storage().nbytes() != self.nbytes

    @property
    def freed(self) -> bool:
        """Whether the memory is free."""
        return bool(self.original.expired())

    def page_out(self) -> None:
        """Begins the copy to the host, if that has not got the bytes already."""
        if self.room is None:
            assert self.flat is not None
            self.room, self.out = self.engine.device.page_out(self.flat)

    def release(self) -> None:
        """Gives up the memory on the device. Computing waits for the copy out, if it must."""
        if self.out is not None:
            self.out.join()
        self.flat = self.out = None

    def let_go(self) -> None:
        """The allocator may take it."""
        assert self.flat is not None
        self.offer = self.engine.device.offer(self.flat)

    def recall(self) -> None:
        """The allocator may take it no more; perhaps it has."""
        if self.offer is not None:
            taken, self.offer = self.offer.withdraw(), None
            if taken is not None:
                self.room, self.flat = taken, None

    def page_in(self) -> None:
        """Begins the copy back, unless the bytes are still there."""
        self.recall()
        if self.flat is not None:
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


def _holders_of_one() -> int:
    """What is counted when only a block's `flat` holds a storage."""
    with torch.no_grad():
        return holders(flat(torch.empty(1)))


_SOLE = _holders_of_one()


class Saved:
    """What autograd keeps for a tensor instead of it.

    Attributes:
        kept: what has the bytes; None if `tensor` has them.
        source: the tensor that was saved, as long as the program has it; `cdata` its storage. None
            if `tensor` is that tensor, or of a kind that has no storage of its own.
    """

    __slots__ = (
        *("cdata", "dtype", "iteration", "kept", "offset", "shape", "source", "stride"),
        *("tensor", "version"),
    )

    def __init__(self, tensor: torch.Tensor, kept: Block | Weight | None, iteration: int) -> None:
        self.kept, self.version, self.iteration = kept, tensor._version, iteration
        # Shares the version counter; bytes only if nothing else has them. A leaf is kept as it is,
        # as autograd does: its `.data` may be another's by the time of backward.
        if kept is not None:
            self.tensor = hollow(tensor)
        else:
            self.tensor = tensor if tensor.is_leaf else tensor.detach()
        self.source: TensorWeakRef | None = None
        self.cdata = 0
        if self.tensor is not tensor and is_plain(tensor):
            self.source = TensorWeakRef(tensor)
            self.cdata = tensor.untyped_storage()._cdata
        self.shape: tuple[int, ...] = () if tensor.is_nested else tuple(tensor.shape)
        self.stride = tensor.stride() if kept else ()
        self.offset, self.dtype = tensor.storage_offset() if kept else 0, tensor.dtype

    def check(self) -> None:
        """Raises InplaceError if the tensor was changed since."""
        if isinstance(self.kept, Weight) and self.kept.replaced:
            raise InplaceError(
                f"the data of a paged parameter of shape {list(self.shape)} was replaced between "
                "forward and backward; assign to `.data` outside, or page it no more"
            )
        if self._replaced():
            raise InplaceError(
                f"a tensor of shape {list(self.shape)} that backward needs was given other data, "
                "`tensor.data = ...`, between forward and backward; do that after backward"
            )
        if self.tensor._version != self.version:
            raise InplaceError(
                "one of the variables needed for gradient computation has been modified by an "
                f"inplace operation: a {self.dtype} tensor of shape {list(self.shape)} is at "
                f"version {self.tensor._version}; expected version {self.version} instead. Hint: "
                "work on a copy of it, or compute in place only after backward"
            )

    def _replaced(self) -> bool:
        """Whether autograd itself would now find other data: it saves inputs as they are."""
        source: torch.Tensor | None = self.source() if self.source is not None else None
        if source is None or source.untyped_storage()._cdata == self.cdata:
            return False
        # Of a result, autograd saves the data.
        return source.grad_fn is None or source.grad_fn is not torch._C._current_autograd_node()
