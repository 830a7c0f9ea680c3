"""What one iteration did: which storages it saved for backward, and what it needed beside them.

Time is counted in events: each saved tensor that is packed or unpacked is one. Interval `e` is
what happens after event `e` and before the next; the last one reaches to the next iteration and so
holds the optimizer's step.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.int64]


class Key(NamedTuple):
    """What tells one iteration's packs from another's: tensor, and block in order of first pack."""

    block: int
    nbytes: int
    shape: tuple[int, ...]
    dtype: str


@dataclass
class Saved:
    """One storage that was saved for backward (a *block*). All numbers but bytes are events.

    Attributes:
        nbytes: of the whole storage.
        packed: its first pack.
        left: the last interval in which the model itself held it; what LMS drops before, stays.
        used: its first unpack; the interval after `freed` when there is none.
        freed: the last interval in which it was saved.
        movable: whether `left` is known.
        weight: the parameter that it is, if the time between two uses of one is what it stands
            for; the host has its bytes then. Such a block that was there before the first event has
            left before it; one that is used no more, is used after the last.
    """

    nbytes: int
    packed: int
    left: int
    used: int
    freed: int
    movable: bool = True
    weight: int = -1

    @property
    def unused(self) -> bool:
        """Whether no backward needed it: that of a loss that was only looked at, for example."""
        return self.weight < 0 and self.used > self.freed

    @property
    def early(self) -> bool:
        """Whether it was there, or away, before the iteration began."""
        return self.left < self.packed


class Call(NamedTuple):
    """One call in forward of a layer that may be computed again.

    Attributes:
        layer: its number.
        first: the first event in it; `end` the first after it.
        kept: blocks that are the layer's inputs and outputs: they are saved either way.
        shape: of its first tensor; tells iterations of other sizes apart.
    """

    layer: int
    first: int
    end: int
    kept: frozenset[int]
    shape: tuple[int, ...]


@dataclass
class Trace:
    """One iteration.

    Attributes:
        order: for each event the block, in order of first pack.
        keys: for each event that packs its key; None for one that unpacks.
        seconds: of computing in each interval, without waits for copies.
        other: bytes that each interval needs at its highest beside the saved blocks.
        blocks: by number.
        base: bytes in use when the iteration began, beside parameters that are paged; `other`
            contains them.
        seen: how many looks at it went into this.
        window: bytes that the last interval needs more because the optimizer's step has paged
            parameters in memory for a time.
        stepped: whether there was a step in it, and not the first: that makes the state only.
        calls: of layers that may be computed again, or are.
    """

    order: list[int] = field(default_factory=list)
    keys: list[Key | None] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    other: list[int] = field(default_factory=list)
    blocks: list[Saved] = field(default_factory=list)
    base: int = 0
    seen: int = 1
    window: int = 0
    stepped: bool = False
    calls: tuple[Call, ...] = ()

    @property
    def turn(self) -> int:
        """The first event that unpacks: where backward begins."""
        return next((e for e, key in enumerate(self.keys) if key is None), len(self.keys))

    def resident(self, moved: set[int] | frozenset[int] = frozenset()) -> Bytes:
        """Bytes at the highest in each interval when `moved` are away for as long as can be."""
        curve = np.array(self.other, np.int64)
        for number, block in enumerate(self.blocks):
            if number in moved and block.left < block.used:
                curve[block.packed : block.left + 1] += block.nbytes
                curve[block.used : block.freed + 1] += block.nbytes
            else:
                curve[block.packed : max(block.left, block.freed) + 1] += block.nbytes
        if len(curve):
            curve[-1] += self.in_step(sum(self.blocks[n].nbytes for n in self._paged(moved)))
        return curve

    def _paged(self, moved: set[int] | frozenset[int]) -> list[int]:
        return [n for n in moved if self.blocks[n].early]

    def in_step(self, paged: int) -> int:
        """What the optimizer's step needs more if so many bytes of parameters are paged."""
        return min(self.window, paged)

    def demand(self) -> int:
        """Bytes that the iteration needs when nothing leaves."""
        return int(self.resident().max(initial=self.base))


def same(first: Trace, second: Trace) -> bool:
    """Whether two traces pack the same tensors in the same order."""
    return first.keys == second.keys and first.order == second.order


def merge(older: Trace, newer: Trace) -> Trace:
    """What two looks at the same iteration have shown, the second while the plan was followed.

    What a plan kept shows nothing about who else holds it: that is the first look's to say.
    """
    return replace(
        older,
        seconds=[min(pair) for pair in zip(older.seconds, newer.seconds, strict=True)],
        other=[max(pair) for pair in zip(older.other, newer.other, strict=True)],
        base=max(older.base, newer.base),
        seen=older.seen + newer.seen,
        window=max(older.window, newer.window),
        stepped=older.stepped or newer.stepped,
    )
