"""The trace of one iteration: the storages that it saved, and the memory that it needed beside.

Time is counted in events: each saved tensor that is packed or unpacked is one. Interval `e`
begins with event `e` and ends with the next; the last one reaches to the next iteration and so
holds the optimizer's step.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

#: Bytes in each interval of an iteration.
MemoryCurve = npt.NDArray[np.int64]

#: The shape of a tensor.
Shape = tuple[int, ...]


class PackKey(NamedTuple):
    """Tells one iteration's packs from another's: tensor, and block in order of first pack."""

    block: int
    nbytes: int
    shape: Shape
    dtype: str


@dataclass
class TracedBlock:
    """One storage that was saved for backward (a *block*). All numbers but bytes are events.

    Attributes:
        nbytes: of the whole storage.
        packed: its first pack.
        last_held: the last interval in which the model itself held it; until then it cannot leave.
        used: its first unpack; the interval after `freed` when there is none.
        freed: the last interval in which it was saved.
        movable: whether `last_held` is known.
        parameter: a parameter's number, if it stands for the time between two uses of that; else
            -1. The host has its bytes then. Such a block that was there before the first event has
            left before it; one that is used no more, is used after the last.
    """

    nbytes: int
    packed: int
    last_held: int
    used: int
    freed: int
    movable: bool = True
    parameter: int = -1

    @property
    def unused(self) -> bool:
        """Whether no backward needed it: that of a loss that was only looked at, for example."""
        return self.parameter < 0 and self.used > self.freed

    @property
    def precedes_iteration(self) -> bool:
        """Whether it was there, or away, before the iteration began."""
        return self.last_held < self.packed


class LayerCall(NamedTuple):
    """One call in forward of a layer that may be computed again.

    Attributes:
        layer: its number in RecomputePolicy.
        first: the first event in it; `end` the first after it.
        kept: blocks that are the layer's inputs and outputs: they are saved either way.
        shape: of its first tensor; tells iterations of other sizes apart.
    """

    layer: int
    first: int
    end: int
    kept: frozenset[int]
    shape: Shape


class Recomputation(NamedTuple):
    """The operations that make one block again.

    Attributes:
        seconds: that they take.
        parents: the blocks that they start from, which must be in memory then.
        workspace: bytes that they need for a time, beside the block and its parents.
        position: of the last operation, in the order of the program.
    """

    seconds: float
    parents: tuple[int, ...]
    workspace: int
    position: int


@dataclass
class Trace:
    """The events of one iteration, with the time and the memory of the intervals between them.

    Attributes:
        order: for each event the block, in order of first pack.
        keys: for each event that packs its key; None for one that unpacks.
        seconds: of computing in each interval, without waits for copies.
        other_bytes: needed in each interval at its highest beside the saved blocks.
        blocks: those that were saved, by number.
        base: bytes in use when the iteration began, beside parameters that are paged; `other_bytes`
            contains them.
        recordings: how many of the iteration went into this.
        step_bytes: bytes that the last interval needs more because the optimizer's step has paged
            parameters in memory for a time.
        earlier: whether there were optimizers' steps before it.
        stepped: whether there was a step in it, and not the first: that makes the state only.
        calls: of layers that may be computed again, or are.
        recomputations: by block, of those that single operations can make again.
    """

    order: list[int] = field(default_factory=list)
    keys: list[PackKey | None] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    other_bytes: list[int] = field(default_factory=list)
    blocks: list[TracedBlock] = field(default_factory=list)
    base: int = 0
    recordings: int = 1
    step_bytes: int = 0
    earlier: bool = False
    stepped: bool = False
    calls: tuple[LayerCall, ...] = ()
    recomputations: dict[int, Recomputation] = field(default_factory=dict)

    def resident(self, moved: set[int] | frozenset[int] = frozenset()) -> MemoryCurve:
        """Bytes at the highest in each interval when `moved` are away for as long as can be."""
        curve = np.array(self.other_bytes, np.int64)
        for number, block in enumerate(self.blocks):
            if number in moved and block.last_held < block.used:
                curve[block.packed : block.last_held + 1] += block.nbytes
                curve[block.used : block.freed + 1] += block.nbytes
            else:
                curve[block.packed : max(block.last_held, block.freed) + 1] += block.nbytes
        if len(curve):
            curve[-1] += self.needed_in_step(sum(self.blocks[n].nbytes for n in self._paged(moved)))
        return curve

    def _paged(self, moved: set[int] | frozenset[int]) -> list[int]:
        return [n for n in moved if self.blocks[n].precedes_iteration]

    def needed_in_step(self, paged: int) -> int:
        """More bytes that the optimizer's step needs if `paged` bytes of parameters are paged."""
        return min(self.step_bytes, paged)

    def demand(self) -> int:
        """Bytes that the iteration needs when nothing leaves."""
        return int(self.resident().max(initial=self.base))


def is_same(first: Trace, second: Trace) -> bool:
    """Whether two traces pack the same tensors in the same order."""
    return first.keys == second.keys and first.order == second.order


def merge(older: Trace, newer: Trace) -> Trace:
    """Joins two recordings of the same iteration, the second while the plan was followed.

    A plan keeps blocks, so the second recording does not show who else holds them: the first does.
    """
    return replace(
        older,
        seconds=[min(pair) for pair in zip(older.seconds, newer.seconds, strict=True)],
        other_bytes=[max(pair) for pair in zip(older.other_bytes, newer.other_bytes, strict=True)],
        base=max(older.base, newer.base),
        recordings=older.recordings + newer.recordings,
        step_bytes=max(older.step_bytes, newer.step_bytes),
        stepped=older.stepped or newer.stepped,
    )
