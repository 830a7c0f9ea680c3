"""Storages that autograd has saved: on the device, on the host, or on their way."""

from __future__ import annotations

import weakref
from typing import Protocol

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from lms.paging.device import AllocatorOffer, Copy, Device, HostMemory
from lms.paging.reference_counts import count_references, references_of_one_view
from lms.paging.source import Source
from lms.paging.swappable import Swappable
from lms.paging.tensors import flat_view


class StorageOwner(Protocol):
    """The owner of saved storages: the iteration that saved them."""

    @property
    def device(self) -> Device:
        """The device that they lie on."""

    def storage_returned(self, storage: SavedStorage) -> None:
        """A storage is on the device again."""

    def storage_freed(self, storage: SavedStorage) -> None:
        """Nothing needs the storage any more."""


class Recipe(Protocol):
    """The way to compute a storage again."""

    def run(self, like: torch.Tensor) -> torch.Tensor:
        """The bytes once more, flat, with the dtype of `like`."""


class SavedStorage(Swappable):
    """One storage that is saved for backward.

    Its bytes may change as long as the program holds it: through `.data`, `unsafe_chunk`, NumPy and
    the like, no version tells that. As backward must see them as they are in the end, they are
    copied once nothing but LMS holds the storage, and not before.
    """

    def __init__(self, owner: StorageOwner, number: int, tensor: torch.Tensor) -> None:
        self.owner, self.number = owner, number
        self.nbytes = tensor.untyped_storage().nbytes()
        self.original = StorageWeakRef(tensor.untyped_storage())
        self.flat: torch.Tensor | None = flat_view(tensor)
        self.used = False
        # The tensor's graph may own this storage: only who saved the tensor may own the source.
        self._sources: list[weakref.ref[Source]] = []
        self._like = self.flat.new_empty(0)
        self._host: HostMemory | None = None
        self._copy_out: Copy | None = None
        self._copy_back: Copy | None = None
        self._offer: AllocatorOffer | None = None
        self._recipe: Recipe | None = None
        #: Storages that are computed again from this one.
        self.dependent: weakref.WeakSet[SavedStorage] = weakref.WeakSet()

    def is_in(self, storage: torch.UntypedStorage) -> bool:
        """Whether it is this storage, or has come back into it, and the size is the same."""
        return (
            self.flat is not None
            and self.flat.untyped_storage()._cdata == storage._cdata
            and storage.nbytes() == self.nbytes
        )

    def source_of(self, tensor: torch.Tensor) -> Source:
        """The source for a tensor in it, one for all that save the tensor."""
        for reference in self._sources:
            known = reference()
            if known is not None and known.keeps(tensor):
                return known
        source = Source(tensor, keep=True)
        self._sources.append(weakref.ref(source))
        return source

    @property
    def absent(self) -> bool:
        """Whether there is nothing to send out: it is away, or backward has used it."""
        return self.used or self.flat is None

    @property
    def on_host(self) -> bool:
        """Whether the host has the bytes, or will have them."""
        return self._host is not None

    @property
    def referenced(self) -> bool:
        """Whether the program holds the bytes too, or has given the storage another size."""
        assert self.flat is not None
        self._sources = [one for one in self._sources if (source := one()) and not source.let_go()]
        if self._sources or count_references(self.flat) > _UNREFERENCED:
            return True
        return self.flat.untyped_storage().nbytes() != self.nbytes

    @property
    def dropped(self) -> bool:
        """Whether it is to be computed again."""
        return self._recipe is not None

    @property
    def freed(self) -> bool:
        """Whether the memory is free."""
        return bool(self.original.expired())

    def page_out(self) -> None:
        """Begins the copy to the host, if that has not got the bytes already."""
        if self._host is None:
            assert self.flat is not None
            self._host, self._copy_out = self.owner.device.page_out(self.flat)

    def release(self) -> None:
        """Gives up the memory on the device. Computing waits for the copy out, if it must."""
        if self._copy_out is not None:
            self._copy_out.join()
        self.flat = self._copy_out = self._copy_back = None

    def drop(self, recipe: Recipe) -> None:
        """Gives up the memory on the device; the bytes will be computed again."""
        self._recipe, self.flat = recipe, None

    def offer(self) -> None:
        """Lets the allocator take the memory."""
        assert self.flat is not None
        self._offer = self.owner.device.offer(self.flat)

    def recall(self) -> None:
        """Takes the offer back; perhaps the allocator has taken the memory."""
        if self._offer is not None:
            taken, self._offer = self._offer.withdraw(), None
            if taken is not None:
                self._host, self.flat = taken, None

    def page_in(self) -> None:
        """Begins the copy back, or computes the bytes again, unless they are still there."""
        self.recall()
        if self.flat is not None:
            return
        if self._recipe is not None:
            self.flat = self._recipe.run(self._like)
            self._recipe = None
        else:
            assert self._host is not None
            self.flat, self._copy_back = self.owner.device.page_in(self._host, self._like)
        self.owner.storage_returned(self)

    def ready(self) -> torch.Tensor:
        """The bytes on the device. Computing waits for the copy back, if it must."""
        self.page_in()
        assert self.flat is not None
        if self._copy_back is not None:
            self._copy_back.join(self.flat)
        return self.flat

    def __del__(self) -> None:
        # Memory that a copy reads or writes must not be used again before the copy is done.
        for copy in (self._copy_out, self._copy_back):
            if copy is not None:
                copy.join()
        self.owner.storage_freed(self)


_UNREFERENCED = references_of_one_view()
