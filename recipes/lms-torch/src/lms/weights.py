"""Parameters whose bytes are on the host while nothing uses them.

A parameter that is away keeps its shape, its device, its gradient and its place in the model; only
its storage is empty. It is of the class `Paged`: every torch function that is given it brings the
bytes back first and keeps them until it returns. What else holds the storage (a view, the result of
`state_dict`) keeps the parameter in memory as long as it lives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import GetSetDescriptorType
from typing import Any, Protocol

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._pytree import tree_leaves

from lms.counts import use_count
from lms.device import Copy, Device, Room, alone, flat
from lms.sizes import charged

#: Properties of a tensor that show its bytes; all others are known without them.
_BYTES = {"data", "T", "mT", "H", "mH", "real", "imag"}
#: Methods that need no bytes.
_WITHOUT = {
    *("dim", "element_size", "get_device", "is_complex", "is_contiguous", "is_floating_point"),
    *("ndimension", "nelement", "numel", "register_hook", "register_post_accumulate_grad_hook"),
    *("requires_grad_", "size", "storage_offset", "stride", "__hash__", "__len__"),
}

#: Methods that give the bytes to others, who may write.
_RAW = {
    *("__array__", "__dlpack__", "data_ptr", "numpy", "set_", "storage", "untyped_storage"),
    *("const_data_ptr", "mutable_data_ptr", "_typed_storage"),
}


class Paged(torch.nn.Parameter):
    """A parameter under paging; see the module."""

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Runs the function with the bytes in place."""
        kwargs = kwargs or {}
        with torch._C.DisableTorchFunctionSubclass():
            if not _needs_bytes(func):
                return func(*args, **kwargs)
            given = (leaf for leaf in tree_leaves((args, kwargs)) if type(leaf) is Paged)
            weights = {id(leaf): weight for leaf in given if (weight := _weights.get(id(leaf)))}
            with in_use(list(weights.values())):
                try:
                    return func(*args, **kwargs)
                finally:
                    if _may_write(func) or kwargs.get("out") is not None:
                        for weight in weights.values():
                            weight.changed()

    def __deepcopy__(self, memo: dict[int, Any]) -> torch.nn.Parameter:
        """A parameter as any other."""
        if id(self) not in memo:
            data = self.data.clone(memory_format=torch.preserve_format)
            memo[id(self)] = torch.nn.Parameter(data, self.requires_grad)
        copied: torch.nn.Parameter = memo[id(self)]
        return copied


def _needs_bytes(func: Callable[..., Any]) -> bool:
    name = getattr(func, "__name__", "")
    if name in {"__get__", "__set__", "__delete__"}:
        owner = getattr(func, "__self__", None)
        return not isinstance(owner, GetSetDescriptorType) or owner.__name__ in _BYTES
    return name not in _WITHOUT


def _may_write(func: Callable[..., Any]) -> bool:
    """Whether a parameter's version may not tell that its bytes change: `.data` has its own."""
    name = getattr(func, "__name__", "")
    if name == "__get__":
        return getattr(getattr(func, "__self__", None), "__name__", "data") == "data"
    return name in _RAW or (name.endswith("_") and not name.endswith("__"))


class Owner(Protocol):
    """Whose weights they are: the engine."""

    device: Device

    def touch(self, weight: Weight) -> None:
        """A weight is about to be used."""

    def stays(self, weight: Weight) -> bool:
        """Whether a weight is to be in memory when an iteration begins."""

    def weight_comes(self, weight: Weight) -> None:
        """A weight is about to be in memory again."""

    def weight_went(self, weight: Weight) -> None:
        """A weight's memory was given up."""


#: By the parameter's id, and by its storage: a weight keeps both alive.
_weights: dict[int, Weight] = {}
_stored: dict[int, Weight] = {}


def weight_of(parameter: torch.Tensor) -> Weight | None:
    """The weight that a parameter is, if it is paged."""
    return _weights.get(id(parameter))


def any_paged() -> bool:
    """Whether there are paged parameters at all."""
    return bool(_weights)


def weight_in(tensor: torch.Tensor) -> Weight | None:
    """The weight in whose storage a tensor lies."""
    if not _stored or tensor.layout is not torch.strided:
        return None
    return _stored.get(tensor.untyped_storage()._cdata)


@contextmanager
def in_use(weights: Sequence[Weight]) -> Iterator[None]:
    """Has some weights in memory inside."""
    for weight in weights:
        weight.pins += 1
    try:
        for weight in weights:
            weight.owner.touch(weight)
        for weight in weights:
            weight.ready()
        yield
    finally:
        for weight in weights:
            weight.pins -= 1


class Gap:
    """The time between two uses of a weight: what `Block` is for what autograd saves."""

    def __init__(self, weight: Weight, number: int) -> None:
        self.weight, self.number, self.used = weight, number, False

    @property
    def gone(self) -> bool:
        """Whether it is no longer in memory."""
        return self.used or not self.weight.here

    @property
    def sent(self) -> bool:
        """Whether the host has the bytes, or will have them."""
        return True

    @property
    def held(self) -> bool:
        """Whether the program itself needs the memory."""
        return self.weight.held

    @property
    def freed(self) -> bool:
        """Whether the memory is free."""
        return not self.weight.here

    @property
    def nbytes(self) -> int:
        """Of the weight."""
        return self.weight.nbytes

    def page_out(self) -> None:
        """Begins the copy to the host, if that has not got the bytes already."""
        self.weight.page_out()

    def release(self) -> None:
        """Gives up the memory, unless something else holds it."""
        if not self.used and not self.held:
            self.weight.release()

    def page_in(self) -> None:
        """Begins the copy back."""
        if not self.used:
            self.weight.page_in()


class Weight:
    """One parameter that is paged.

    Attributes:
        charged: bytes that it takes of the device's memory.
        here: whether its bytes are on the device, or on their way to it.
        place: its number among all of them; that of the block that it is before its first use.
        pins: how many functions are running that were given it.
        gap: from its last use on.
    """

    def __init__(self, owner: Owner, parameter: torch.nn.Parameter, place: int) -> None:
        self.owner, self.parameter, self.place = owner, parameter, place
        with torch._C.DisableTorchFunctionSubclass():
            self.storage = StorageWeakRef(parameter.untyped_storage())
            self.nbytes = parameter.untyped_storage().nbytes()
            self.charged = charged(self.nbytes)
            self.shape, self.dtype = tuple(parameter.shape), str(parameter.dtype)
        self.here, self.pins = True, 0
        self.gap = Gap(self, -1)
        self._room: Room | None = None
        self._version = -1  # of the bytes in the room
        self._out: Copy | None = None
        self._leaving: torch.Tensor | None = None  # what that copy reads
        self._back: Copy | None = None
        _weights[id(parameter)] = _stored[self.storage.cdata] = self
        self.watch(True)

    def watch(self, on: bool) -> None:
        """Whether functions that are given the parameter are to be seen."""
        self.watched = on
        if type(self.parameter) in (Paged, torch.nn.Parameter):  # not one without numbers
            self.parameter.__class__ = Paged if on else torch.nn.Parameter

    @property
    def held(self) -> bool:
        """Whether anything but the model holds the bytes, or they are no more the parameter's."""
        if self.pins or not self.watched or self.replaced:
            return True
        holders = use_count(self.storage.cdata)
        return holders - (self._leaving is not None) > _SOLE

    @property
    def replaced(self) -> bool:
        """Whether the parameter was given another storage, as by an assignment to `.data`."""
        with torch._C.DisableTorchFunctionSubclass():
            return bool(self.parameter.untyped_storage()._cdata != self.storage.cdata)

    def changed(self) -> None:
        """The bytes may have changed: the host has them no more."""
        self._version = -1

    def page_out(self) -> None:
        """Begins the copy to the host, if the bytes have changed since the last one."""
        with torch._C.DisableTorchFunctionSubclass():
            if self.here and self.parameter._version != self._version:
                self._sent()
                self._version, self._leaving = self.parameter._version, alone(self.parameter)
                self._room, self._out = self.owner.device.page_out(self._leaving)

    def _sent(self) -> None:
        """Computing waits for the copy to the host."""
        if self._out is not None:
            self._out.join()
        self._out = self._leaving = None

    def release(self) -> None:
        """Gives up the memory on the device; computing waits for copies, if it must."""
        if not self.here:
            return
        self.ready()
        self.page_out()
        self._sent()
        self.watch(True)
        with torch._C.DisableTorchFunctionSubclass():
            self.owner.device.vacate(self.parameter)
        self.here = False
        self.owner.weight_went(self)

    def page_in(self) -> None:
        """Begins the copy back, if the bytes are away."""
        if not self.here:
            self.owner.weight_comes(self)
            with torch._C.DisableTorchFunctionSubclass():
                self._back = self.owner.device.refill(self._room, self.parameter, self.nbytes)
            self.here = True

    def ready(self) -> torch.Tensor:
        """The bytes on the device. Computing waits for the copy back, if it must."""
        self.page_in()
        if self._back is not None:
            self._back.join()
            self._back = None
        with torch._C.DisableTorchFunctionSubclass():
            return flat(self.parameter)

    def forget(self, keep: bool) -> None:
        """Brings it back for good: a parameter as any other; or has done with it."""
        if keep:
            self.ready()
        self.watch(False)
        _weights.pop(id(self.parameter), None)
        _stored.pop(self.storage.cdata, None)


def _holders_of_parameter() -> int:
    """What torch counts when only a parameter holds a storage."""
    only = torch.nn.Parameter(torch.empty(1))
    return use_count(only.untyped_storage()._cdata)


_SOLE = _holders_of_parameter()
