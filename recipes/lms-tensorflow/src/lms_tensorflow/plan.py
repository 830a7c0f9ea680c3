"""Chooses the tensors to swap: the least that keeps the limit, the longest unused first."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from lms_tensorflow.errors import LimitError
from lms_tensorflow.graph import Graph
from lms_tensorflow.options import Options, to_text
from lms_tensorflow.order import Order, make_order, make_sequence
from lms_tensorflow.schedule import Curve, Distances, Schedule, Stretch, curve_of, schedules
from lms_tensorflow.sizes import Sizes
from lms_tensorflow.storage import Storage, storages

#: The values of `swapin_ahead` that LMS tries, and the one it takes without a limit. The last value
#: tried is for the least memory: each use by itself, and nothing beside the computation.
AHEAD = (32, 16, 8, 4, 2, 1, 0)
AHEAD_WITHOUT_LIMIT = 4

#: The lengths of steps that LMS tries, as parts of the limit: long ones leave TensorFlow more to
#: choose, short ones are closer to the least memory.
STEPS = (64, 1024, 65536)

#: A longer way ahead hides more of a swap-in; it is worth this much more to move.
WORTH = 1.25


@dataclass(slots=True)
class Swap:
    """A storage and the stretches of use for which it comes back."""

    storage: Storage
    stretches: list[Stretch]

    @property
    def bytes(self) -> int:
        """Bytes that come back in a step."""
        return sum(self.storage.bytes * len(one.sources()) for one in self.stretches)


@dataclass(slots=True)
class Plan:
    """The swaps of a graph, and the memory that the device needs with them.

    `before` is bytes per level and `after` per step where there is an order, and per level where
    there is none; the variables are included.
    """

    graph: Graph
    sizes: Sizes
    device: str
    host: str
    options: Options
    limit: int | None
    distances: Distances
    before: Curve
    after: Curve
    swaps: list[Swap] = field(default_factory=list)
    #: The order that the operations are held to. None: they are free, and levels are the graph's.
    order: Order | None = None
    #: The reasons why other storage stays, each with their number and bytes.
    kept: dict[str, tuple[int, int]] = field(default_factory=dict)

    #: Storage whose size nobody knows before the step runs.
    unknown: int = 0

    @property
    def peak_before(self) -> int:
        """The most that the device holds without LMS, in bytes."""
        return int(self.before.max(initial=0))

    @property
    def peak_after(self) -> int:
        """The most that the device holds with the swaps, in bytes."""
        return int(self.after.max(initial=0))

    @property
    def bytes_out(self) -> int:
        """Bytes that go to the host in a step."""
        return sum(
            swap.storage.bytes * len({one for s in swap.stretches for one in s.sources()})
            for swap in self.swaps
        )

    @property
    def bytes_in(self) -> int:
        """Bytes that come back in a step."""
        return sum(swap.bytes for swap in self.swaps)


def make_plan(
    graph: Graph,
    sizes: Sizes,
    device: str,
    host: str,
    options: Options,
    limit: int | None,
    unknown_too: bool = False,
) -> Plan:
    """Plan the swaps of a graph.

    Args:
        device: full name of the device whose memory is short.
        host: full name of the device to swap to.
        limit: bytes; None to swap every use that is as late as the options say.
        unknown_too: also swap tensors whose size is not known.

    Raises:
        LimitError: the device needs more than the limit, whatever is swapped.
    """
    usual = _Layout(graph, sizes, device, options, None, unknown_too)
    if limit is None and not options.ordered and not unknown_too:
        tried = [_Try(usual, _distances(options, options.swapin_ahead or AHEAD_WITHOUT_LIMIT))]
    elif limit is not None and usual.total <= limit:
        tried = [_Try(usual, _distances(options, 1), nothing=True)]
    else:
        tried = _tried(graph, sizes, device, options, limit, unknown_too)
    best = _best(tried, limit)
    layout, after = best.layout, best.curve
    if limit is not None and after.max(initial=0) > limit:
        raise LimitError(_shortfall(layout, after, usual.curve, limit))
    swaps = [Swap(one.storage, one.merged()) for one in best.chosen]
    swaps = [one for one in swaps if one.stretches]
    plan = Plan(
        layout.graph, sizes, device, host, options, limit, best.distances, usual.curve, after, swaps
    )
    plan.order = layout.order
    plan.unknown = sum(not one.known for one in layout.found)
    plan.kept = _kept(layout, swaps, best.distances, limit)
    return plan


class _Layout:
    """The memory on the device over time, in an order or in levels, with nothing swapped."""

    def __init__(
        self,
        graph: Graph,
        sizes: Sizes,
        device: str,
        options: Options,
        order: Order | None,
        unknown_too: bool,
    ) -> None:
        self.graph, self.order = order.graph if order else graph, order
        self.found = storages(self.graph, sizes, device, order)
        self.variables = sizes.variables.get(device, 0)
        self.stays = {id(one): _stays(one, options, unknown_too) for one in self.found}
        self.wanted = [one for one in self.found if not self.stays[id(one)]]
        self.triggers = set(order.ends) if order else _triggers(graph, sizes, device)
        levels = self.graph.last_level + 1
        self.curve = curve_of((Schedule(one, []) for one in self.found), levels) + self.variables
        rest = (Schedule(one, []) for one in self.found if self.stays[id(one)])
        self.rest = curve_of(rest, levels) + self.variables
        #: If nothing was ever free again.
        self.total = self.variables + sum(one.bytes for one in self.found)


class _Try:
    """A layout with the swaps for some distances."""

    def __init__(
        self, layout: _Layout, distances: Distances, limit: int | None = None, nothing: bool = False
    ) -> None:
        self.layout, self.distances = layout, distances
        self.chosen: list[Schedule] = []
        self.curve = layout.curve
        if not nothing:
            self.chosen = schedules(
                layout.graph, layout.wanted, distances, layout.triggers, layout.order is not None
            )
            self.curve = layout.rest + curve_of(self.chosen, len(layout.rest))
        if limit is not None and self.chosen and self.curve.max() <= limit:
            _give_back(self.chosen, self.curve, limit)
        self.moved = sum(Swap(one.storage, one.merged()).bytes for one in self.chosen)


def _stays(storage: Storage, options: Options, unknown_too: bool) -> str:
    """Why a storage is not swapped; empty where it can be."""
    if storage.bound:
        return storage.bound
    if not storage.known:
        return "" if unknown_too else "of unknown size"
    return "" if storage.bytes >= int(options.min_bytes) else "small"


def _triggers(graph: Graph, sizes: Sizes, device: str) -> set[int]:
    """Operations of the device that compute; TensorFlow makes constants of others later on."""
    return {
        i
        for (i, _), size in sizes.of.items()
        if graph.operations[i].device == device
        and not graph.operations[i].guards
        and i not in graph.groups
        and size.floating
        and size.elements != 1
    }


def _distances(options: Options, ahead: int, ordered: bool = False) -> Distances:
    threshold = options.swapout_threshold or ahead + 2
    groupby = options.swapin_groupby
    if groupby is None:
        groupby = ahead + 1 if ahead else 0
    behind = 1
    if ordered:
        behind = 0 if options.sync_mode & 1 else max(ahead - 1, 0)
    return Distances(threshold, max(ahead, 1), groupby, behind)


def _tried(
    graph: Graph, sizes: Sizes, device: str, options: Options, limit: int | None, unknown_too: bool
) -> list[_Try]:
    """Orders of longer and shorter steps, each with ways ahead; the freest first."""
    lengths = [1] if limit is None else [limit // part for part in STEPS]
    if options.serialization_by_size is not None:
        lengths = [int(options.serialization_by_size)]
    elif options.serialization is not None and limit is None:
        lengths = [sys.maxsize]
    levels = options.serialized(graph.last_level + 1)
    ahead = AHEAD if limit is not None else (1 if unknown_too else AHEAD_WITHOUT_LIMIT,)
    if options.swapin_ahead is not None:
        ahead = (options.swapin_ahead,)

    sequence, tried = make_sequence(graph), []
    for length in lengths:
        order = make_order(graph, sizes, device, sequence, length, levels)
        laid = _Layout(graph, sizes, device, options, order, unknown_too)
        if limit is not None and laid.curve.max() <= limit:
            return [_Try(laid, _distances(options, ahead[0], True), nothing=True)]
        tried += [_Try(laid, _distances(options, one, True), limit) for one in ahead]
    return tried


def _best(tried: list[_Try], limit: int | None) -> _Try:
    """The first that keeps the limit and does not move much more than another that does.

    If no try keeps the limit, it is the one that comes nearest.
    """
    fitting = [one for one in tried if limit is None or one.curve.max(initial=0) <= limit]
    if not fitting:
        return min(tried, key=lambda one: int(one.curve.max()))
    least = min(one.moved for one in fitting)
    return next(one for one in fitting if one.moved <= WORTH * least)


def _give_back(chosen: list[Schedule], curve: Curve, limit: int) -> None:
    """Leave on the device as much as the limit allows, beginning with the shortest gaps."""
    stretches = [(one.gap, i, one) for i, owner in enumerate(chosen) for one in owner.stretches]
    for _, i, stretch in sorted(stretches, key=lambda one: (one[0], one[1])):
        owner = chosen[i]
        owner.add_to(curve, -1)
        stretch.swapped = False
        owner.add_to(curve)
        if curve.max() > limit:
            owner.add_to(curve, -1)
            stretch.swapped = True
            owner.add_to(curve)


def _kept(
    layout: _Layout, swaps: list[Swap], distances: Distances, limit: int | None
) -> dict[str, tuple[int, int]]:
    moved = {id(one.storage) for one in swaps}
    count: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for storage in layout.found:
        if id(storage) in moved:
            continue
        why = layout.stays[id(storage)]
        if not why and storage.last - storage.made < distances.threshold:
            why = "used at once"
        why = why or storage.stays or ("not needed" if limit is not None else "used at once")
        count[why] += 1
        total[why] += storage.bytes
    return {why: (count[why], total[why]) for why in sorted(count)}


def _shortfall(layout: _Layout, after: Curve, usual: Curve, limit: int) -> str:
    """The error's text when no plan keeps the limit."""
    level, need = int(np.argmax(after)), int(after.max())
    there = [one for one in layout.found if one.made <= level <= one.last]
    largest = max(there, key=lambda one: one.bytes, default=None)
    bound: Counter[str] = Counter()
    for one in there:
        bound[layout.stays[id(one)] or one.stays] += one.bytes
    del bound[""]
    fixed = [f"{to_text(size)} are {why}" for why, size in bound.most_common(3) if size]
    told = f"{to_text(layout.variables)} are variables" + "".join(f", {one}" for one in fixed)
    if largest is not None:
        name = layout.graph.operations[largest.root[0]].name
        told += f"; the largest tensor there is {name} with {to_text(largest.bytes)}"
    return (
        f"LMS: the limit of {to_text(limit)} cannot be kept: {to_text(need)} are needed at least, "
        f"{to_text(need - limit)} more (without LMS: {to_text(int(usual.max()))}). Of them "
        f"{told}. Give a higher limit or a smaller batch"
    )
