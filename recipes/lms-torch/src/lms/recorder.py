"""Records one iteration: the order of packs, uses and frees, times, and the curve of memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from lms.device import Device
from lms.sizes import charged
from lms.trace import Key, Saved, Trace
from lms.weights import Weight


class Recorder:
    """Watches an iteration from its first pack on.

    Resident memory is logged as spans of intervals, in the convention of the planner (a block
    counts in every interval in which it was there at any time), so that what is not the blocks'
    comes out right whatever moved while it was recorded.
    """

    def __init__(self, device: Device, weights: Sequence[Weight] = ()) -> None:
        self.device = device
        here = [weight for weight in weights if weight.here]
        self.trace = Trace(base=device.memory() - sum(weight.charged for weight in here))
        self.trace.blocks = [
            Saved(weight.charged, 0, -1, -1, -1, not weight.here, number)
            for number, weight in enumerate(weights)
        ]
        # Paged parameters in memory: bytes now, and the fewest in this interval. The most of all
        # that was in memory in it, and of what was no parameter's.
        self._here = self._least = sum(weight.charged for weight in here)
        self._all = self._beside = 0
        self._spans: list[tuple[int, int, int]] = []  # first and last interval, bytes
        self._held: dict[int, tuple[StorageWeakRef, int]] = {}  # storages in memory, since when
        self._unknown: set[int] = set()  # blocks that the model still holds, as far as is known
        self._peaks: list[int] = []
        self._before: list[Any] = []
        self._after: list[Any] = []
        device.take_peak()

    def resume(self, trace: Trace, events: int, held: dict[int, torch.Tensor]) -> None:
        """Takes over what another iteration with the same beginning has shown.

        Args:
            events: how many of that iteration's events happened in this one too.
            held: for each block that is in memory now, what it is.
        """
        mine = self.trace
        mine.base = trace.base
        mine.order, mine.keys = trace.order[:events], trace.keys[:events]
        mine.seconds, mine.other = trace.seconds[:events], trace.other[:events]
        early, mine.blocks = len(mine.blocks), []
        for number in range(max(early - 1, *mine.order) + 1):
            block = trace.blocks[number]
            known = block.movable and block.left < events - 1
            mine.blocks.append(
                Saved(
                    block.nbytes,
                    block.packed,
                    block.left if known else events,
                    block.used if block.used < events and not block.unused else -1,
                    block.freed if block.freed < events - 1 else -1,
                    known,
                    block.weight,
                )
            )
        for number, tensor in held.items():
            self._held[number] = (StorageWeakRef(tensor.untyped_storage()), events)
            if not mine.blocks[number].movable:
                self._unknown.add(number)

    def enter(self) -> None:
        """An event begins: the interval before it is over."""
        if self._before:
            self._note()
            self._peaks.append(self._beside)
        self._before.append(self.device.stamp())
        self._sweep(len(self.trace.order) - 1)

    def pack(self, key: Key, tensor: torch.Tensor) -> None:
        """The event packs; for a new block `tensor` is its memory."""
        event = len(self.trace.order)
        self.trace.order.append(key.block)
        self.trace.keys.append(key)
        if key.block == len(self.trace.blocks):
            self.trace.blocks.append(Saved(charged(key.nbytes), event, event, -1, -1))
            self._held[key.block] = (StorageWeakRef(tensor.untyped_storage()), event)
            self._unknown.add(key.block)

    def gap(self, key: Key, weight: int) -> None:
        """The event begins a time in which a weight is not used."""
        event = len(self.trace.order)
        self.trace.order.append(key.block)
        self.trace.keys.append(key)
        self.trace.blocks.append(Saved(charged(key.nbytes), event, event, -1, -1, False, weight))

    def comes(self, weight: Weight) -> None:
        """A weight is about to be in memory."""
        self._note()
        self._here += weight.charged

    def went(self, weight: Weight) -> None:
        """A weight's memory was given up."""
        self._note()
        self._here -= weight.charged
        self._least = min(self._least, self._here)

    def _note(self) -> None:
        """What was needed beside the parameters since they last came or went."""
        peak = self.device.take_peak()
        self._all, self._beside = max(self._all, peak), max(self._beside, peak - self._here)
        self.device.take_peak()  # from here on

    def unpack(self, number: int) -> None:
        """The event unpacks a block."""
        block = self.trace.blocks[number]
        if block.used < 0:
            block.used = len(self.trace.order)
        self.trace.order.append(number)
        self.trace.keys.append(None)

    def returned(self, number: int, tensor: torch.Tensor) -> None:
        """A block is in memory again since this event."""
        reference = StorageWeakRef(tensor.untyped_storage())
        self._held[number] = (reference, max(0, len(self.trace.order) - 1))

    def freed(self, number: int) -> None:
        """Nothing needs the block any more."""
        self.trace.blocks[number].freed = max(0, len(self.trace.order) - 1)

    def left(self, number: int) -> None:
        """The model holds the block no more since before this event, and nor does anything."""
        interval = len(self.trace.order) - 1
        self.trace.blocks[number].left = interval
        self.trace.blocks[number].movable = True
        self._unknown.discard(number)
        if number in self._held and self._held[number][0].expired():
            self._close(number, self._held[number][1], interval)

    def leave(self) -> None:
        """The event is over: the interval after it begins."""
        self._after.append(self.device.stamp())
        self.device.take_peak()
        self._all, self._beside, self._least = 0, 0, self._here

    def _sweep(self, interval: int) -> None:
        """Notes which storages died in an interval that is over."""
        for number, (reference, since) in list(self._held.items()):
            if reference.expired():
                self._close(number, since, max(interval, since))

    def _close(self, number: int, since: int, until: int) -> None:
        self._spans.append((since, until, self.trace.blocks[number].nbytes))
        if number in self._unknown:  # used before the model let go of it, and dead now
            self.trace.blocks[number].left = until
            self._unknown.discard(number)
        del self._held[number]

    def finish(self) -> Trace:
        """The iteration is over; its trace. Waits for the device."""
        trace, last = self.trace, len(self.trace.order) - 1
        self._note()
        self._peaks.append(self._beside)
        trace.window = max(0, self._all - self._least - self._beside)
        self._before.append(self.device.stamp())
        self._sweep(last)
        for number, (_, since) in list(self._held.items()):
            self._close(number, since, last)
        for block in trace.blocks:
            if block.weight >= 0:
                block.used = block.freed = block.used if block.used >= 0 else last + 1
                continue
            freed = last if block.freed < 0 else block.freed
            if block.used < 0:
                block.used, block.freed = freed + 1, freed
            else:
                block.freed = max(block.used, freed)
        start = len(trace.order) - len(self._after)  # recorded from here on
        other = np.array(self._peaks, np.int64)
        for since, until, nbytes in self._spans:
            other[max(0, since - start) : max(0, until - start + 1)] -= nbytes
        trace.other += np.maximum(other, 0).tolist()
        trace.seconds += [
            self.device.seconds(after, before)
            for after, before in zip(self._after, self._before[1:], strict=True)
        ]
        return trace
