"""Parameters whose bytes are on the host while nothing uses them.

A parameter that is away keeps its shape, its device, its gradient and its place in the model; only
its storage is empty. Every torch function that is given it brings the bytes back first and keeps
them until it returns (`lms.hooks.parameter_access`). Anything else that holds the storage (a view,
the result of `state_dict`) keeps the parameter in memory as long as it lives.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from lms.paging.device import Copy, Device, HostMemory
from lms.paging.reference_counts import use_count, uses_of_one_parameter
from lms.paging.swappable import Swappable
from lms.paging.tensors import flat_view, independent_view
from lms.sizes import allocated_size


class ParameterOwner(Protocol):
    """The owner of paged parameters: the engine.

    Attributes:
        watched_class: a parameter's class while uses of it are to be seen.
    """

    device: Device
    watched_class: type[torch.nn.Parameter]

    def before_use(self, parameter: PagedParameter) -> None:
        """A parameter is about to be used."""

    def stays(self, parameter: PagedParameter) -> bool:
        """Whether a parameter is to be in memory when an iteration begins."""

    def parameter_returns(self, parameter: PagedParameter) -> None:
        """A parameter is about to be in memory again."""

    def parameter_released(self, parameter: PagedParameter) -> None:
        """A parameter's memory was given up."""


#: By the parameter's id, and by its storage: a `PagedParameter` keeps both alive.
_by_id: dict[int, PagedParameter] = {}
_by_storage: dict[int, PagedParameter] = {}


def paged_parameter(parameter: torch.Tensor) -> PagedParameter | None:
    """The paging of a parameter, if it is paged."""
    return _by_id.get(id(parameter))


def paged_among(parameters: Iterable[torch.Tensor]) -> list[PagedParameter]:
    """The paging of those parameters that are paged, in their order."""
    return [paged for p in parameters if (paged := _by_id.get(id(p))) is not None]


def any_paged() -> bool:
    """Whether there are paged parameters at all."""
    return bool(_by_id)


def paged_parameter_in(tensor: torch.Tensor) -> PagedParameter | None:
    """The paged parameter in whose storage a tensor lies."""
    if not _by_storage or tensor.layout is not torch.strided:
        return None
    return _by_storage.get(tensor.untyped_storage()._cdata)


@contextmanager
def pinned(parameters: Sequence[PagedParameter]) -> Iterator[None]:
    """Keeps some parameters in memory inside."""
    for parameter in parameters:
        parameter.pins += 1
    try:
        for parameter in parameters:
            parameter.owner.before_use(parameter)
        for parameter in parameters:
            parameter.ready()
        yield
    finally:
        for parameter in parameters:
            parameter.pins -= 1


class IdlePeriod(Swappable):
    """The time between two uses of a parameter, in which its memory can be given up."""

    def __init__(self, parameter: PagedParameter, number: int) -> None:
        self.parameter, self.number, self.used = parameter, number, False
        self.nbytes = parameter.nbytes

    @property
    def absent(self) -> bool:
        """Whether it is no longer in memory, or the period is over."""
        return self.used or not self.parameter.resident

    @property
    def on_host(self) -> bool:
        """Always: the host has the bytes, or will have them."""
        return True

    @property
    def referenced(self) -> bool:
        """Whether the program itself needs the memory."""
        return self.parameter.referenced

    @property
    def freed(self) -> bool:
        """Whether the memory is free."""
        return not self.parameter.resident

    def page_out(self) -> None:
        """Begins the copy to the host, if that has not got the bytes already."""
        self.parameter.page_out()

    def release(self) -> None:
        """Gives up the memory, unless something else holds it."""
        if not self.used and not self.referenced:
            self.parameter.release()

    def page_in(self) -> None:
        """Begins the copy back."""
        if not self.used:
            self.parameter.page_in()

    def offer(self) -> None:
        """Does nothing: parameters are not offered to the allocator."""

    def recall(self) -> None:
        """Does nothing, as `offer`."""


class PagedParameter:
    """One parameter that is paged.

    Attributes:
        allocated: bytes that it takes of the device's memory.
        resident: whether its bytes are on the device, or on their way to it.
        index: its number among all of them; also that of its period before the first use.
        pins: how many functions are running that were given it.
        idle: the period since its last use.
        watched: whether functions that are given it are seen.
    """

    def __init__(self, owner: ParameterOwner, parameter: torch.nn.Parameter, index: int) -> None:
        self.owner, self.parameter, self.index = owner, parameter, index
        with torch._C.DisableTorchFunctionSubclass():
            self.storage = StorageWeakRef(parameter.untyped_storage())
            self.nbytes = parameter.untyped_storage().nbytes()
            self.allocated = allocated_size(self.nbytes)
            self.shape, self.dtype = tuple(parameter.shape), str(parameter.dtype)
        self.resident, self.pins = True, 0
        self.idle = IdlePeriod(self, -1)
        self._host: HostMemory | None = None
        self._host_version = -1  # of the bytes there
        self._copy_out: Copy | None = None
        self._copied: torch.Tensor | None = None  # the view that this copy reads
        self._copy_back: Copy | None = None
        _by_id[id(parameter)] = _by_storage[self.storage.cdata] = self
        self.watch(True)

    def watch(self, on: bool) -> None:
        """Sets whether functions that are given the parameter are to be seen."""
        self.watched, seen = on, self.owner.watched_class
        if type(self.parameter) in (seen, torch.nn.Parameter):  # not one without numbers
            self.parameter.__class__ = seen if on else torch.nn.Parameter

    @property
    def referenced(self) -> bool:
        """Whether anything but the model holds the bytes, or they are no more the parameter's."""
        if self.pins or not self.watched or self.replaced:
            return True
        return use_count(self.storage.cdata) - (self._copied is not None) > _UNREFERENCED

    @property
    def replaced(self) -> bool:
        """Whether the parameter was given another storage, as by an assignment to `.data`."""
        with torch._C.DisableTorchFunctionSubclass():
            return bool(self.parameter.untyped_storage()._cdata != self.storage.cdata)

    def mark_changed(self) -> None:
        """The bytes may have changed: the host has them no more."""
        self._host_version = -1

    def page_out(self) -> None:
        """Begins the copy to the host, if the bytes have changed since the last one."""
        with torch._C.DisableTorchFunctionSubclass():
            if self.resident and self.parameter._version != self._host_version:
                self._join_copy_out()
                self._host, self._host_version = None, -1  # that memory can be used again
                copied = independent_view(self.parameter)
                self._host, self._copy_out = self.owner.device.page_out(copied)
                self._copied, self._host_version = copied, self.parameter._version

    def _join_copy_out(self) -> None:
        """Computing waits for the copy to the host."""
        if self._copy_out is not None:
            self._copy_out.join()
        self._copy_out = self._copied = None

    def release(self) -> None:
        """Gives up the memory on the device; computing waits for copies, if it must."""
        if not self.resident:
            return
        self.ready()
        self.page_out()
        self._join_copy_out()
        self.watch(True)
        with torch._C.DisableTorchFunctionSubclass():
            self.owner.device.vacate(self.parameter)
        self.resident, self._copy_back = False, None
        self.owner.parameter_released(self)

    def page_in(self) -> None:
        """Begins the copy back, if the bytes are away."""
        if not self.resident:
            self.owner.parameter_returns(self)
            with torch._C.DisableTorchFunctionSubclass():
                device = self.owner.device
                self._copy_back = device.refill(self._host, self.parameter, self.nbytes)
            self.resident = True

    def ready(self) -> torch.Tensor:
        """The bytes on the device. Computing waits for the copy back, if it must."""
        self.page_in()
        with torch._C.DisableTorchFunctionSubclass():
            flat = flat_view(self.parameter)
            if self._copy_back is not None:
                self._copy_back.join(flat)
            return flat

    def forget(self, keep: bool) -> None:
        """Ends the paging: the parameter comes back for good, unless nobody wants it."""
        if keep:
            self.ready()
        self.watch(False)
        _by_id.pop(id(self.parameter), None)
        _by_storage.pop(self.storage.cdata, None)


_UNREFERENCED = uses_of_one_parameter()
