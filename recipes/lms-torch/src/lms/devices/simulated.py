"""A device without hardware: real numbers on the CPU, a meter of bytes and a clock of its own.

    device = SimulatedDevice(memory="2GiB")
    with device, lms.LMS(limit="1GiB", device=device):
        train()

Every operation that runs inside is taken for one of the device's: the storages that it touches lie
in the device's memory until they die, and its time is that of the slower of arithmetic and memory.
Copies run on two engines, one for each direction, beside computing. Under torch's FakeTensorMode
models of any size run in no time and no memory, with the same meter and clock.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from lms.paging.device import TransferRates
from lms.paging.paged_parameter import PagedParameter, any_paged, paged_parameter_in, pinned
from lms.paging.pinned_slabs import host_is_full
from lms.paging.tensors import is_fake, nbytes_of, restore_storage
from lms.sizes import Size, allocated_size, parse_size, size_text


@dataclass(frozen=True)
class Speed:
    """The work of a device in a second. The defaults are an H100's on PCIe 5, under load.

    Attributes:
        arithmetic: multiply-adds and such that matrix products reach, counted as two each.
        memory: bytes read and written.
        d2h: bytes copied to the host; `h2d` from it.
        launch: seconds that the smallest operation takes.
    """

    arithmetic: float = 400e12
    memory: float = 2.8e12
    d2h: float = 55e9
    h2d: float = 55e9
    launch: float = 3e-6


class SimulatedOutOfMemory(torch.OutOfMemoryError):
    """The program needed more than the simulated device has: `short` bytes more."""

    def __init__(self, message: str, short: int) -> None:
        super().__init__(message)
        self.short = short


@dataclass
class _Copy:
    device: SimulatedDevice
    done: float

    def join(self, target: torch.Tensor | None = None) -> None:
        """Moves the compute clock to the copy's end."""
        self.device.exposed += max(0.0, self.done - self.device.clock)
        self.device.clock = max(self.device.clock, self.done)


class SimulatedDevice(TorchDispatchMode):
    """See the module.

    Args:
        memory: bytes, as `parse_size` reads them; `host` those for what leaves, None for any.

    Attributes:
        clock: seconds of the compute queue; `exposed` of them it waited for copies.
        highest: the most bytes in use so far; `used` are in use now.
        moved: bytes copied, both ways; `host_used` are on the host now.
    """

    def __init__(
        self, memory: Size = "80GiB", speed: Speed | None = None, host: Size | None = None
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total = parse_size(memory, "memory")
        self.host = None if host is None else parse_size(host, "host")
        self.host_used = 0
        self.speed = speed or Speed()
        self.rates = TransferRates(self.speed.d2h, self.speed.h2d, self.speed.launch)
        self.budget = self.total
        self.clock = self.exposed = 0.0
        self.highest = self.moved = self._used = 0
        self._peak = 0
        self._out_free = self._back_free = 0.0
        self._storages: dict[int, tuple[StorageWeakRef, int]] = {}  # address → storage, bytes
        self._lock = threading.RLock()  # of all in use: several threads may compute
        self._aside = threading.local()

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Runs the operation and charges it."""
        kwargs = kwargs or {}
        if self._depth:
            return func(*args, **kwargs)
        with pinned([] if func.is_view else self._paged_parameters(args, kwargs)):
            return self._run(func, args, kwargs)

    def _paged_parameters(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> list[PagedParameter]:
        """Paged parameters without numbers: as they are of no class of their own, seen here."""
        if not any_paged():
            return []
        given = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        fake = [t for t in given if is_fake(t)]
        found = [p for t in fake if (p := paged_parameter_in(t)) is not None]
        return [parameter for parameter in dict.fromkeys(found) if parameter.watched]

    def _run(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Runs an operation of the program and charges it."""
        result = func(*args, **kwargs)
        if func._schema.name.startswith("aten::_foreach") and func._schema.name.endswith("_"):
            # CUDA's kernels count the change; below a dispatch mode the CPU's do not.
            torch.autograd.graph.increment_version(args[0])
        before = {id(t): t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)}
        after = {id(t): t for t in tree_leaves(result) if isinstance(t, torch.Tensor)}
        for tensor in (before | after).values():
            self.adopt(tensor)
        self.clock += self._cost(func, args, kwargs, result, before, after)
        return result

    def _cost(
        self,
        func: Any,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        result: Any,
        before: dict[int, torch.Tensor],
        after: dict[int, torch.Tensor],
    ) -> float:
        if func.is_view or not after:
            return 0.0
        touched = sum(t.numel() * t.element_size() for t in (*before.values(), *after.values()))
        seconds = touched / self.speed.memory
        count = flop_registry.get(func) or flop_registry.get(func.overloadpacket)
        if count is not None:
            flops = count(*args, **kwargs, out_val=result)
            seconds = max(seconds, flops / self.speed.arithmetic)
        return max(self.speed.launch, seconds)

    @property
    def used(self) -> int:
        """Bytes in use."""
        with self._lock:
            for key, (storage, _) in list(self._storages.items()):
                if storage.expired():
                    self._forget(key)
            return self._used

    def adopt(self, tensor: torch.Tensor) -> None:
        """Counts the tensor's storage as the device's until it dies.

        Raises:
            SimulatedOutOfMemory: it does not fit.
        """
        if tensor.layout is not torch.strided:
            return
        storage = tensor.untyped_storage()
        with self._lock:
            self._adopt(storage, storage._cdata, allocated_size(storage.nbytes()))

    def _adopt(self, storage: torch.UntypedStorage, key: int, nbytes: int) -> None:
        if key in self._storages or not nbytes:
            return
        self._storages[key] = StorageWeakRef(storage), nbytes
        self._used += nbytes
        if self._used <= min(self.highest, self._peak, self.budget):
            return  # whatever of it has died
        self.highest, self._peak = max(self.highest, self.used), max(self._peak, self._used)
        if self._used > self.budget:
            raise SimulatedOutOfMemory(
                f"the simulated device is out of memory: {size_text(nbytes)} more make "
                f"{size_text(self._used)} of {size_text(self.budget)}",
                self._used - self.budget,
            )

    def _forget(self, key: int) -> None:
        _, nbytes = self._storages.pop(key)
        self._used -= nbytes

    def owns(self, tensor: torch.Tensor) -> bool:
        """Always: an operation saves its arguments, though they may come from outside."""
        self.adopt(tensor)
        return tensor.untyped_storage()._cdata in self._storages

    def capacity(self) -> int:
        """The whole of its memory: nobody else uses it."""
        return self.total

    def cap(self, limit: int) -> int:
        """All of the limit may be planned: there is no fragmentation here."""
        self.budget = min(self.total, limit)
        return self.budget

    def limit_for(self, planned: int) -> int:
        """The same, as all of a limit may be planned."""
        return planned

    def uncap(self) -> None:
        """Back to all of the memory."""
        self.budget = self.total

    def memory(self) -> int:
        """The bytes in use."""
        return self.used

    def take_peak(self) -> int:
        """The most bytes in use since the last call."""
        peak, self._peak = self._peak, self.used
        return peak

    def short_of(self, error: torch.OutOfMemoryError) -> int:
        """The bytes by which the allocation was too large."""
        return error.short if isinstance(error, SimulatedOutOfMemory) else 1

    def page_out(self, flat: torch.Tensor) -> tuple[torch.Tensor, _Copy]:
        """The copy is a tensor that the meter does not know."""
        nbytes = nbytes_of(flat)
        if self.host is not None and self.host_used + nbytes > self.host:
            raise host_is_full(nbytes, self.host_used, self.host)
        self.moved += nbytes
        self._out_free = max(self.clock, self._out_free) + self.rates.seconds_out(nbytes)
        with self.aside():
            slot = flat.clone()
        self.host_used += nbytes
        weakref.finalize(slot, self._give_host, nbytes)
        return slot, _Copy(self, self._out_free)

    def _give_host(self, nbytes: int) -> None:
        self.host_used -= nbytes

    def page_in(self, slot: torch.Tensor, like: torch.Tensor) -> tuple[torch.Tensor, _Copy]:
        """The bytes again, metered."""
        copy = self._copy_back(nbytes_of(slot))
        with self.aside():
            tensor = slot.clone()
        self.adopt(tensor)
        return tensor, copy

    def _copy_back(self, nbytes: int) -> _Copy:
        """A copy on the engine for copies to the device."""
        self.moved += nbytes
        self._back_free = max(self.clock, self._back_free) + self.rates.seconds_back(nbytes)
        return _Copy(self, self._back_free)

    def vacate(self, tensor: torch.Tensor) -> None:
        """The meter counts it no more."""
        storage = tensor.untyped_storage()
        storage.resize_(0)
        with self._lock:
            if storage._cdata in self._storages:
                self._forget(storage._cdata)

    def refill(self, slot: torch.Tensor, tensor: torch.Tensor, nbytes: int) -> _Copy:
        """Metered again."""
        copy = self._copy_back(nbytes)
        with self.aside():
            restore_storage(tensor, nbytes).copy_(slot)
        self.adopt(tensor)
        return copy

    def offer(self, flat: torch.Tensor) -> None:
        """There is no allocator here to take it."""

    @contextmanager
    def aside(self) -> Iterator[None]:
        """The code inside is neither metered nor timed."""
        self._aside.depth = self._depth + 1
        try:
            yield
        finally:
            self._aside.depth -= 1

    @contextmanager
    def computing(self) -> Iterator[None]:
        """The code inside is metered and timed, though it is within an `aside` block."""
        depth, self._aside.depth = self._depth, 0
        try:
            yield
        finally:
            self._aside.depth = depth

    @property
    def _depth(self) -> int:
        """The depth of this thread's `aside` blocks."""
        return int(getattr(self._aside, "depth", 0))

    def stamp(self) -> float:
        """The compute clock."""
        return self.clock

    def seconds(self, first: float, second: float) -> float:
        """The time between two stamps, by the compute clock."""
        return second - first

    def wait(self, seconds: float) -> None:
        """Keeps the compute queue busy, as a kernel outside of torch would."""
        self.clock += seconds
