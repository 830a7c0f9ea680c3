"""The uses of a storage that could read from the host, and the memory then held at each level.

A storage is used in *stretches*: uses close to each other. Before the first stretch it is made;
before each later one it can be swapped in, and then need not be there in between.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Set
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lms_tensorflow.graph import Graph, Tensor
from lms_tensorflow.storage import Storage, Use

Curve = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Distances:
    """Distances in levels: see `Options`."""

    threshold: int
    ahead: int
    groupby: int
    #: The time that a swap-out may take; then the memory counts as free.
    behind: int = 1


@dataclass(slots=True)
class Stretch:
    """Uses that one swap-in serves, and the operation after which it begins."""

    uses: list[Use]
    trigger: int
    trigger_level: int
    #: The last use before, after which the memory is free.
    after: int
    #: The level from which it takes memory again.
    begins: int
    swapped: bool = True

    @property
    def first(self) -> int:
        """The level of the first use."""
        return self.uses[0].level

    @property
    def last(self) -> int:
        """The level of the last use."""
        return self.uses[-1].level

    @property
    def gap(self) -> int:
        """The number of levels for which the memory can be free."""
        return self.trigger_level - self.after - 1

    def sources(self) -> list[Tensor]:
        """The tensors to swap; a tensor made within the stretch stands on swapped-in ones."""
        return sorted({use.source for use in self.served()})

    def served(self) -> list[Use]:
        """The uses that read swapped-in tensors by themselves."""
        return [use for use in self.uses if use.made <= self.after]


class Schedule:
    """A storage and its stretches after the first."""

    def __init__(self, storage: Storage, stretches: list[Stretch], behind: int = 1) -> None:
        self.storage = storage
        self.stretches = stretches
        self.behind = behind

    def merged(self) -> list[Stretch]:
        """The stretches that are swapped; those that are not belong to the one before."""
        found: list[Stretch] = []
        for one in self.stretches:
            if one.swapped:
                found.append(dataclasses.replace(one, uses=list(one.uses)))
            elif found:
                found[-1].uses.extend(one.uses)
        return found

    def add_to(self, curve: Curve, sign: int = 1) -> None:
        """Add the bytes at each level, or take them away."""
        size, swapped = self.storage.bytes * sign, self.merged()
        last = self.storage.last
        if swapped:
            last = max(swapped[0].after, self.storage.made + self.behind)
        curve[self.storage.made : last + 1] += size
        for one in swapped:
            curve[one.begins : one.last + 1] += size * len(one.sources())


def schedules(
    graph: Graph,
    found: Iterable[Storage],
    distances: Distances,
    triggers: Set[int],
    ordered: bool,
) -> list[Schedule]:
    """The schedule of each storage; one that must stay has no stretches.

    Args:
        found: storage that can be swapped.
        distances: between uses.
        triggers: operations whose end can start a swap-in.
        ordered: the triggers end their levels; so a swap-in begins with the next.
    """
    return [
        Schedule(one, _stretches(graph, one, distances, triggers, ordered), distances.behind)
        for one in found
    ]


def curve_of(planned: Iterable[Schedule], levels: int) -> Curve:
    """The bytes on the device at each level."""
    curve = np.zeros(levels, dtype=np.int64)
    for one in planned:
        one.add_to(curve)
    return curve


def _stretches(
    graph: Graph, storage: Storage, distances: Distances, triggers: Set[int], ordered: bool
) -> list[Stretch]:
    if storage.bound:
        return []
    near = [use.level for use in storage.uses if use.level - storage.made < distances.threshold]
    after = max([storage.held_until, *near])
    late = [use for use in storage.uses if use.level > after]
    found: list[Stretch] = []
    while late:
        count = 1
        while count < len(late) and late[count].level - late[count - 1].level <= distances.groupby:
            count += 1
        uses, late = late[:count], late[count:]
        trigger = _trigger(graph, uses[0], after, distances.ahead, triggers)
        if trigger is not None:
            level = graph.operations[trigger].level
            found.append(Stretch(uses, trigger, level, after, level + ordered))
        elif found:
            found[-1].uses.extend(uses)
        after = uses[-1].level
    return found


def _trigger(graph: Graph, use: Use, after: int, ahead: int, triggers: Set[int]) -> int | None:
    """A trigger that the use waits for anyway, `ahead` levels before it if memory is free then."""
    best = None
    at = use.reader
    while True:
        operation = graph.operations[at]
        before = graph.sources(operation)
        if not before:
            return best
        at = max(before, key=lambda i: graph.operations[i].level)
        operation = graph.operations[at]
        if operation.level <= after:
            return best
        if at in triggers:
            best = at
            if operation.level <= use.level - ahead:
                return best
