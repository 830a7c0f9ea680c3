"""Records one iteration: the order of packs, uses and frees, times, and the curve of memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from lms.paging.device import Device
from lms.paging.paged_parameter import PagedParameter
from lms.planning.trace import PackKey, Trace, TracedBlock
from lms.sizes import allocated_size


class Recorder:
    """Watches an iteration from its first pack on.

    Resident memory is logged as spans of intervals, in the convention of the planner (a block
    counts in every interval in which it was there at any time). So all memory beside the blocks
    comes out right whatever moved while it was recorded.
    """

    def __init__(self, device: Device, parameters: Sequence[PagedParameter] = ()) -> None:
        self.device = device
        resident = sum(parameter.allocated for parameter in parameters if parameter.resident)
        self.trace = Trace(base=device.memory() - resident)
        self.trace.blocks = [
            TracedBlock(parameter.allocated, 0, -1, -1, -1, not parameter.resident, number)
            for number, parameter in enumerate(parameters)
        ]
        # Paged parameters in memory: bytes now, and the fewest in this interval.
        self._parameters = self._fewest_parameters = resident
        # The most of all that was in memory in this interval, and of all but the parameters.
        self._peak = self._peak_beside = 0
        self._spans: list[tuple[int, int, int]] = []  # first and last interval, bytes
        self._held: dict[int, tuple[StorageWeakRef, int]] = {}  # storages in memory, since when
        self._unknown: set[int] = set()  # blocks that the model still holds, as far as is known
        self._peaks: list[int] = []
        self._event_begins: list[Any] = []
        self._event_ends: list[Any] = []
        device.take_peak()

    def resume(self, trace: Trace, events: int, held: dict[int, torch.Tensor]) -> None:
        """Takes over the beginning of another iteration that went alike so far.

        Args:
            events: how many of that iteration's events happened in this one too.
            held: for each block that is in memory now, its bytes.
        """
        mine = self.trace
        mine.base = trace.base
        mine.order, mine.keys = trace.order[:events], trace.keys[:events]
        mine.seconds, mine.other_bytes = trace.seconds[:events], trace.other_bytes[:events]
        early, mine.blocks = len(mine.blocks), []
        for number in range(max(early - 1, *mine.order) + 1):
            mine.blocks.append(_so_far(trace.blocks[number], events))
        for number, tensor in held.items():
            self._held[number] = (StorageWeakRef(tensor.untyped_storage()), events)
            if not mine.blocks[number].movable:
                self._unknown.add(number)

    def event_begins(self) -> None:
        """An event begins: the interval before it is over."""
        if self._event_begins:
            self._note_peak()
            self._peaks.append(self._peak_beside)
        self._event_begins.append(self.device.stamp())
        self._close_dead(len(self.trace.order) - 1)

    def pack(self, key: PackKey, tensor: torch.Tensor) -> None:
        """The event packs; for a new block `tensor` is its memory."""
        event = len(self.trace.order)
        self.trace.order.append(key.block)
        self.trace.keys.append(key)
        if key.block == len(self.trace.blocks):
            nbytes = allocated_size(key.nbytes)
            self.trace.blocks.append(TracedBlock(nbytes, event, event, -1, -1))
            self._held[key.block] = (StorageWeakRef(tensor.untyped_storage()), event)
            self._unknown.add(key.block)

    def idle_begins(self, key: PackKey, parameter: int) -> None:
        """The event begins a time in which a parameter is not used."""
        event = len(self.trace.order)
        self.trace.order.append(key.block)
        self.trace.keys.append(key)
        nbytes = allocated_size(key.nbytes)
        self.trace.blocks.append(TracedBlock(nbytes, event, event, -1, -1, False, parameter))

    def parameter_returns(self, parameter: PagedParameter) -> None:
        """A parameter is about to be in memory."""
        self._note_peak()
        self._parameters += parameter.allocated

    def parameter_released(self, parameter: PagedParameter) -> None:
        """A parameter's memory was given up."""
        self._note_peak()
        self._parameters -= parameter.allocated
        self._fewest_parameters = min(self._fewest_parameters, self._parameters)

    def _note_peak(self) -> None:
        """Memory that was needed beside the parameters since they last came or went."""
        peak = self.device.take_peak()
        self._peak = max(self._peak, peak)
        self._peak_beside = max(self._peak_beside, peak - self._parameters)
        self.device.take_peak()  # from here on

    def unpack(self, number: int) -> None:
        """The event unpacks a block."""
        block = self.trace.blocks[number]
        if block.used < 0:
            block.used = len(self.trace.order)
        self.trace.order.append(number)
        self.trace.keys.append(None)

    def storage_returned(self, number: int, tensor: torch.Tensor) -> None:
        """A block is in memory again since this event."""
        reference = StorageWeakRef(tensor.untyped_storage())
        self._held[number] = (reference, max(0, len(self.trace.order) - 1))

    def storage_freed(self, number: int) -> None:
        """Nothing needs the block any more."""
        self.trace.blocks[number].freed = max(0, len(self.trace.order) - 1)

    def storage_left(self, number: int) -> None:
        """The model holds the block no more since before this event, and nor does anything."""
        interval = len(self.trace.order) - 1
        self.trace.blocks[number].last_held = interval
        self.trace.blocks[number].movable = True
        self._unknown.discard(number)
        if number in self._held and self._held[number][0].expired():
            self._close(number, self._held[number][1], interval)

    def event_ends(self) -> None:
        """The event is over: the interval after it begins."""
        self._event_ends.append(self.device.stamp())
        self.device.take_peak()
        self._peak, self._peak_beside, self._fewest_parameters = 0, 0, self._parameters

    def _close_dead(self, interval: int) -> None:
        """Notes which storages died in an interval that is over."""
        for number, (reference, since) in list(self._held.items()):
            if reference.expired():
                self._close(number, since, max(interval, since))

    def _close(self, number: int, since: int, until: int) -> None:
        """Notes the intervals in which a block was in memory."""
        self._spans.append((since, until, self.trace.blocks[number].nbytes))
        if number in self._unknown:  # used before the model let go of it, and dead now
            self.trace.blocks[number].last_held = until
            self._unknown.discard(number)
        del self._held[number]

    def finish(self) -> Trace:
        """The iteration is over; its trace. Waits for the device."""
        trace, last = self.trace, len(self.trace.order) - 1
        self._note_peak()
        self._peaks.append(self._peak_beside)
        trace.step_bytes = max(0, self._peak - self._fewest_parameters - self._peak_beside)
        self._event_begins.append(self.device.stamp())
        self._close_dead(last)
        for number, (_, since) in list(self._held.items()):
            self._close(number, since, last)
        self._close_uses(last)
        start = len(trace.order) - len(self._event_ends)  # recorded from here on
        other = np.array(self._peaks, np.int64)
        for since, until, nbytes in self._spans:
            other[max(0, since - start) : max(0, until - start + 1)] -= nbytes
        trace.other_bytes += np.maximum(other, 0).tolist()
        trace.seconds += [
            self.device.seconds(end, begin)
            for end, begin in zip(self._event_ends, self._event_begins[1:], strict=True)
        ]
        return trace

    def _close_uses(self, last: int) -> None:
        """Completes the blocks that were not used, or not freed, until the last interval."""
        for block in self.trace.blocks:
            if block.parameter >= 0:
                block.used = block.freed = block.used if block.used >= 0 else last + 1
                continue
            freed = last if block.freed < 0 else block.freed
            if block.used < 0:
                block.used, block.freed = freed + 1, freed
            else:
                block.freed = max(block.used, freed)


def _so_far(block: TracedBlock, events: int) -> TracedBlock:
    """A block as it is known after some events of its iteration."""
    known = block.movable and block.last_held < events - 1
    return TracedBlock(
        block.nbytes,
        block.packed,
        block.last_held if known else events,
        block.used if block.used < events and not block.unused else -1,
        block.freed if block.freed < events - 1 else -1,
        known,
        block.parameter,
    )
