"""Chooses what to swap: the least that keeps the limit, the longest unused first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from lms_tensorflow.errors import LimitError
from lms_tensorflow.graph import Graph
from lms_tensorflow.options import Options, to_text
from lms_tensorflow.schedule import Curve, Distances, Schedule, Stretch, curve_of, schedules
from lms_tensorflow.sizes import Sizes
from lms_tensorflow.storage import Storage, storages

#: What LMS tries for `swapin_ahead`, and takes where there is no limit to try it against.
AHEAD = (32, 16, 8, 4, 2, 1)
AHEAD_WITHOUT_LIMIT = 4

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
    """What is swapped in a graph, and the memory that the device needs for it.

    `before` and `after` are bytes per level, the variables included.
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
    #: Why other storage stays: how many, and how many bytes.
    kept: dict[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def peak_before(self) -> int:
        """The most that the device holds without LMS, in bytes."""
        return int(self.before.max(initial=0))

    @property
    def peak_after(self) -> int:
        """The most that it holds with what is swapped, in bytes."""
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
        graph: the operations.
        sizes: of the graph's tensors.
        device: full name of the device whose memory is short.
        host: full name of the device to swap to.
        options: what the user gave.
        limit: bytes; None to swap every use that is as late as the options say.
        unknown_too: also swap tensors whose size is not known.

    Raises:
        LimitError: the device needs more than the limit, whatever is swapped.
    """
    found = storages(graph, sizes, device)
    variables = sizes.variables.get(device, 0)

    def movable(storage: Storage) -> str:
        if storage.bound:
            return storage.bound
        if not storage.known:
            return "" if unknown_too else "of unknown size"
        return "" if storage.bytes >= int(options.min_bytes) else "small"

    stays = {id(one): movable(one) for one in found}
    wanted = [one for one in found if not stays[id(one)]]
    triggers = _triggers(graph, sizes, device)
    base = curve_of((Schedule(one, []) for one in found), graph.last_level + 1) + variables
    rest = curve_of((Schedule(one, []) for one in found if stays[id(one)]), len(base)) + variables

    def planned(distances: Distances) -> tuple[list[Schedule], Curve]:
        chosen = schedules(graph, wanted, distances, triggers)
        return chosen, rest + curve_of(chosen, len(base))

    distances = _distances(options, options.swapin_ahead or AHEAD_WITHOUT_LIMIT)
    if limit is None:
        chosen, after = planned(distances)
    elif base.max(initial=0) <= limit:
        chosen, after = [], base
    else:
        distances, chosen, after = _tuned(options, limit, planned)
        if after.max(initial=0) > limit:
            raise LimitError(_shortfall(graph, found, stays, after, base, variables, limit))
    swaps = [Swap(one.storage, one.merged()) for one in chosen]
    swaps = [one for one in swaps if one.stretches]
    plan = Plan(graph, sizes, device, host, options, limit, distances, base, after, swaps)
    plan.kept = _kept(found, stays, swaps, distances, limit)
    return plan


def _triggers(graph: Graph, sizes: Sizes, device: str) -> set[int]:
    """Operations of the device that compute: of others TensorFlow makes constants later on."""
    return {
        i
        for (i, _), size in sizes.of.items()
        if graph.operations[i].device == device
        and not graph.operations[i].guards
        and size.floating
        and size.elements != 1
    }


def _distances(options: Options, ahead: int) -> Distances:
    threshold = options.swapout_threshold or ahead + 2
    groupby = options.swapin_groupby
    return Distances(threshold, ahead, ahead + 1 if groupby is None else groupby)


def _tuned(
    options: Options, limit: int, planned: Callable[[Distances], tuple[list[Schedule], Curve]]
) -> tuple[Distances, list[Schedule], Curve]:
    """The longest way ahead that keeps the limit and does not move much more than a shorter one.

    Where none keeps it, the one that comes nearest.
    """
    tried = []
    for ahead in AHEAD if options.swapin_ahead is None else (options.swapin_ahead,):
        distances = _distances(options, ahead)
        chosen, curve = planned(distances)
        if curve.max() <= limit:
            _give_back(chosen, curve, limit)
        moved = sum(Swap(one.storage, one.merged()).bytes for one in chosen)
        tried.append((distances, chosen, curve, moved))
    fitting = [one for one in tried if one[2].max() <= limit]
    if not fitting:
        return min(tried, key=lambda one: int(one[2].max()))[:3]
    least = min(one[3] for one in fitting)
    return next(one for one in fitting if one[3] <= WORTH * least)[:3]


def _give_back(chosen: list[Schedule], curve: Curve, limit: int) -> None:
    """Leave on the device what the limit allows, what is needed again soonest first."""
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
    found: list[Storage],
    stays: dict[int, str],
    swaps: list[Swap],
    distances: Distances,
    limit: int | None,
) -> dict[str, tuple[int, int]]:
    moved = {id(one.storage) for one in swaps}
    count: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for storage in found:
        if id(storage) in moved:
            continue
        why = stays[id(storage)]
        if not why and storage.last - storage.made < distances.threshold:
            why = "used at once"
        why = why or storage.stays or ("not needed" if limit is not None else "used at once")
        count[why] += 1
        total[why] += storage.bytes
    return {why: (count[why], total[why]) for why in sorted(count)}


def _shortfall(
    graph: Graph,
    found: list[Storage],
    stays: dict[int, str],
    after: Curve,
    base: Curve,
    variables: int,
    limit: int,
) -> str:
    """What to tell when no plan keeps the limit."""
    level, need = int(np.argmax(after)), int(after.max())
    there = [one for one in found if one.made <= level <= one.last]
    largest = max(there, key=lambda one: one.bytes, default=None)
    bound: Counter[str] = Counter()
    for one in there:
        bound[stays[id(one)] or one.stays] += one.bytes
    del bound[""]
    fixed = [f"{to_text(size)} are {why}" for why, size in bound.most_common(3) if size]
    told = f"{to_text(variables)} are variables" + "".join(f", {one}" for one in fixed)
    if largest is not None:
        name = graph.operations[largest.root[0]].name
        told += f"; the largest tensor there is {name} with {to_text(largest.bytes)}"
    return (
        f"LMS: the limit of {to_text(limit)} cannot be kept: {to_text(need)} are needed at least, "
        f"{to_text(need - limit)} more (without LMS: {to_text(int(base.max()))}). Of them "
        f"{told}. Give a higher limit or a smaller batch"
    )
