"""A CUDA device: two side streams for copies, pinned slabs on the host.

Memory on the device is allocated and given up on compute streams alone: those that were current at
any event. A copy waits for all of them, and they wait for the copy before its source is given up.
So the caching allocator sees compute streams alone, most often one. Memory that comes back on one
stream and is used on another is recorded there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch

from lms.errors import LimitError
from lms.paging.device import TransferRates
from lms.paging.pinned_slabs import HostSlot, SlabPool
from lms.paging.reference_counts import uses_of_one_view
from lms.paging.tensors import restore_storage
from lms.sizes import DEFAULT_SHARE, PLANNED_SHARE, parse_size, size_text

_TRIAL_BYTES = 1 << 26  # bytes of the copies that measure the way to the host
_TRIAL_COPIES = 5


class _Copy:
    """A copy on a side stream; `keep` holds its source until the compute streams wait for it."""

    def __init__(self, device: CudaDevice, side: torch.cuda.Stream, keep: object) -> None:
        self._device, self._keep = device, keep
        self._made_on = device.current_stream()
        self._waiting: set[torch.cuda.Stream] = set()
        self._done = torch.cuda.Event()
        self._done.record(side)

    def join(self, target: torch.Tensor | None = None) -> None:
        """The compute streams wait; the source can go."""
        current = self._device.current_stream()
        for stream in self._device.streams - self._waiting:
            stream.wait_event(self._done)
            self._waiting.add(stream)
        self._keep = None
        if target is not None and current != self._made_on:
            target.record_stream(current)  # or its memory would be used again too early


class _Offer:
    """A storage within the reach of the reclaim hook (`csrc/reclaim.cc`)."""

    def __init__(self, hook: ModuleType, flat: torch.Tensor, slot: HostSlot, owners: int) -> None:
        self._hook, self._slot = hook, slot
        self._ticket = hook.offer(flat.untyped_storage()._cdata, slot.bytes.data_ptr(), owners)

    def withdraw(self) -> HostSlot | None:
        """The slot with the bytes, if the allocator took the storage."""
        ticket, self._ticket = self._ticket, 0
        return self._slot if ticket and self._hook.withdraw(ticket) else None

    def __del__(self) -> None:
        self.withdraw()


def _load_reclaim_hook() -> ModuleType | None:
    """The C++ part; None in a build for a torch without CUDA."""
    try:
        import lms._reclaim as hook
    except ImportError:
        return None
    return hook


class CudaDevice:
    """The current CUDA device. One for each process, as in all of torch's parallel training.

    Attributes:
        streams: those that computing was seen on.
    """

    def __init__(self) -> None:
        self.index = torch.cuda.current_device()
        self.total = torch.cuda.get_device_properties(self.index).total_memory
        self.pool = SlabPool()
        self._out = torch.cuda.Stream(self.index)
        self._back = torch.cuda.Stream(self.index)
        self._hook = _load_reclaim_hook()
        self.streams: set[torch.cuda.Stream] = set()
        self._fraction = 1.0  # of the card, that the program allows itself
        self.owners = uses_of_one_view()
        self.rates = self._measure()

    def _measure(self) -> TransferRates:
        """The rates of both ways at once, as in training: the middle one of some copies."""
        slot, other = self.pool.take(_TRIAL_BYTES), self.pool.take(_TRIAL_BYTES)
        there = torch.empty(2, _TRIAL_BYTES, dtype=torch.uint8, device=self.index)
        times: list[tuple[float, float]] = []
        for _ in range(_TRIAL_COPIES):
            spans = [[torch.cuda.Event(enable_timing=True) for _ in "ab"] for _ in "ab"]
            torch.cuda.synchronize()
            for stream, (first, last), target, source in (
                (self._out, spans[0], slot.bytes, there[0]),
                (self._back, spans[1], there[1], other.bytes),
            ):
                with torch.cuda.stream(stream):
                    first.record(stream)
                    target.copy_(source, non_blocking=True)
                    last.record(stream)
            torch.cuda.synchronize()
            times.append(tuple(first.elapsed_time(last) / 1e3 for first, last in spans))
        # The limit that follows is for the program: what the trial took is given back.
        del there
        torch.cuda.empty_cache()
        out, back = (sorted(column)[_TRIAL_COPIES // 2] for column in zip(*times, strict=True))
        return TransferRates(_TRIAL_BYTES / out, _TRIAL_BYTES / back)

    def current_stream(self) -> torch.cuda.Stream:
        """The stream that computing is on now, which is one of `streams` from now on."""
        stream = torch.cuda.current_stream(self.index)
        if stream not in self.streams:
            self.streams.add(stream)
            if self._hook:
                self._hook.add_stream(stream.cuda_stream)
        return stream

    def _wait_for_computing(self, side: torch.cuda.Stream) -> None:
        self.current_stream()
        for stream in self.streams:
            side.wait_stream(stream)

    def owns(self, tensor: torch.Tensor) -> bool:
        """Whether it is on this GPU."""
        return tensor.is_cuda and tensor.device.index == self.index

    def capacity(self) -> int:
        """Free memory, and memory that torch holds already; of what the program allows itself."""
        free, _ = torch.cuda.mem_get_info(self.index)
        share = torch.cuda.get_per_process_memory_fraction(self.index)
        there = free + torch.cuda.memory_reserved(self.index)
        return int(min(there * DEFAULT_SHARE, share * self.total))

    def cap(self, limit: int) -> int:
        """Has torch's allocator refuse more than `limit`.

        Raises:
            LimitError: the card has less, or the program allows itself less.
        """
        if limit > self.total:
            raise LimitError(
                f"limit is {limit} bytes ({size_text(limit)}), but GPU {self.index} has only "
                f"{self.total} ({size_text(self.total)})"
            )
        fraction = torch.cuda.get_per_process_memory_fraction(self.index)
        if limit > fraction * self.total:
            raise LimitError(
                f"limit is {limit} bytes ({size_text(limit)}), but this program has set itself "
                f"{fraction:g} of GPU {self.index}, {size_text(fraction * self.total)}, by "
                "torch.cuda.set_per_process_memory_fraction; raise that, or lower the limit"
            )
        self._fraction = fraction
        torch.cuda.set_per_process_memory_fraction(limit / self.total, self.index)
        if self._hook:
            self._hook.configure(limit, limit // 16)
        return int(limit * PLANNED_SHARE)

    def limit_for(self, planned: int) -> int:
        """The share for fragmentation is added."""
        return int(planned / PLANNED_SHARE) + 2  # one for rounding

    def uncap(self) -> None:
        """Allows what the program had allowed itself."""
        torch.cuda.set_per_process_memory_fraction(self._fraction, self.index)
        if self._hook:
            self._hook.configure(0, 0)

    def memory(self) -> int:
        """Bytes that torch's allocator has handed out."""
        return torch.cuda.memory_allocated(self.index)

    def take_peak(self) -> int:
        """The most of them since the last call."""
        peak = torch.cuda.max_memory_allocated(self.index)
        torch.cuda.reset_peak_memory_stats(self.index)
        return peak

    def short_of(self, error: torch.OutOfMemoryError) -> int:
        """The request that failed, from torch's message."""
        found = re.search(r"Tried to allocate ([\d.]+ [KMG]iB)", str(error))
        return parse_size(found[1]) if found else 1

    def page_out(self, flat: torch.Tensor) -> tuple[HostSlot, _Copy]:
        """On the stream for copies out, after all computing so far."""
        source = flat.view(torch.uint8)
        slot = self.pool.take(source.numel())
        self._wait_for_computing(self._out)
        with torch.cuda.stream(self._out):
            slot.bytes.copy_(source, non_blocking=True)
        return slot, _Copy(self, self._out, flat)

    def page_in(self, slot: HostSlot, like: torch.Tensor) -> tuple[torch.Tensor, _Copy]:
        """Into memory of the current stream, on the stream for copies in."""
        flat = like.new_empty(slot.bytes.numel() // like.element_size())
        return flat, self._copy_back(slot, flat)

    def vacate(self, tensor: torch.Tensor) -> None:
        """Given up on the stream that it was allocated on, which waits for all copies of it."""
        tensor.untyped_storage().resize_(0)

    def refill(self, slot: HostSlot, tensor: torch.Tensor, nbytes: int) -> _Copy:
        """Into memory of the current stream, on the stream for copies in."""
        return self._copy_back(slot, restore_storage(tensor, nbytes))

    def _copy_back(self, slot: HostSlot, flat: torch.Tensor) -> _Copy:
        self._wait_for_computing(self._back)
        with torch.cuda.stream(self._back):
            flat.view(torch.uint8).copy_(slot.bytes, non_blocking=True)
        return _Copy(self, self._back, slot)

    def offer(self, flat: torch.Tensor) -> _Offer | None:
        """None without a free pinned slot: to pin more would cost more than it may save."""
        nbytes = flat.untyped_storage().nbytes()
        if not self._hook or self.pool.free < nbytes:
            return None
        return _Offer(self._hook, flat, self.pool.take(nbytes), self.owners)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """There is nothing to set aside on a real device; its streams are seen."""
        self.current_stream()
        yield

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Computing is seen either way."""
        yield

    def stamp(self) -> torch.cuda.Event:
        """An event with a time."""
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self.index))
        return event

    def seconds(self, first: Any, second: Any) -> float:
        """Between two events, once the later one has happened."""
        second.synchronize()
        return float(first.elapsed_time(second)) / 1e3
