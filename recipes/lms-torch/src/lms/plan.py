"""The planner: from one iteration's trace and a limit in bytes to the smallest swap set.

Longest reuse distance first: what was saved first is used last, has the whole forward pass to
leave and the whole backward pass to return. Copies out run one after the other, each from when the
program lets go of the storage, since until then it may change; copies in in the order of use, each
kind on its own engine. Where the limit leaves no room for copies in flight, computing waits for the
head of the queue and no longer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from lms.errors import NoPlanError
from lms.sizes import size_text
from lms.trace import Bytes, Trace

#: What `make_plan` tries.
_ROOMS = (0.0, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0)
#: A plan that moves more bytes must be this much faster.
_WORTH = 0.002


@dataclass(frozen=True)
class Rates:
    """What the way between device and host carries, in bytes per second, and a copy's latency."""

    d2h: float
    h2d: float
    latency: float = 10e-6

    def out(self, nbytes: int) -> float:
        """Seconds of a copy to the host."""
        return self.latency + nbytes / self.d2h

    def back(self, nbytes: int) -> float:
        """Seconds of a copy to the device."""
        return self.latency + nbytes / self.h2d


@dataclass(frozen=True)
class Move:
    """One block's way out and back.

    Attributes:
        release: the event at which its memory on the device is given up; -1 before the first.
        fetch: the event at which the copy back begins; its first use if there is no room before.
    """

    block: int
    nbytes: int
    release: int
    fetch: int


@dataclass
class Plan:
    """What leaves and when.

    Attributes:
        moves: by block.
        seconds: predicted for the iteration.
        exposed: predicted seconds in which computing waits for copies.
        hidden: predicted seconds of copies that run beside computing.
        peak: predicted bytes at the highest; at most `limit`.
        curve: predicted bytes in each interval.
    """

    limit: int
    moves: dict[int, Move] = field(default_factory=dict)
    seconds: float = 0.0
    exposed: float = 0.0
    hidden: float = 0.0
    peak: int = 0
    curve: list[int] = field(default_factory=list)

    @property
    def moved(self) -> int:
        """Bytes that leave in one iteration."""
        return sum(move.nbytes for move in self.moves.values())

    def at(self, events: int) -> tuple[list[list[int]], list[list[int]]]:
        """For each event the blocks to release and those to fetch, each in the planned order."""
        release: list[list[int]] = [[] for _ in range(events)]
        fetch: list[list[int]] = [[] for _ in range(events)]
        for move in self.moves.values():
            if 0 <= move.release < events:
                release[move.release].append(move.block)
            if move.fetch < events:
                fetch[move.fetch].append(move.block)
        return release, fetch


def best_share(forward: float, backward: float, leaving: float, rate: float) -> float:
    """R(M): the throughput relative to in-core that no scheme of copying can pass.

    Args:
        forward: seconds of computing; `backward` likewise.
        leaving: bytes that must leave and come back.
        rate: bytes per second in one direction.
    """
    copying = leaving / rate
    return (forward + backward) / (max(forward, copying) + max(backward, copying))


def make_plan(
    trace: Trace, limit: int, rates: Rates, smallest: int = 1, rooms: Sequence[float] = _ROOMS
) -> Plan:
    """The fastest of the small plans for an iteration like `trace`.

    Args:
        limit: bytes on the device, all of the program's.
        smallest: blocks of fewer bytes stay.
        rooms: kept free for copies in flight, in units of the largest block; the fastest is taken.

    Raises:
        NoPlanError: not even with everything gone that can go.
    """
    largest = max((block.nbytes for block in trace.blocks), default=0)
    best: Plan | None = None
    chosen: set[frozenset[int]] = set()
    for room in rooms:
        moved = _choose(trace, limit - int(room * largest), smallest)
        if moved is None:
            if best is None:
                raise _no_plan(trace, limit, smallest)
            break
        if moved in chosen:
            continue
        chosen.add(moved)
        plan = _schedule(trace, limit, rates, moved)
        if best is None or plan.seconds < best.seconds * (1 - _WORTH):
            best = plan
        if plan.exposed == 0:
            break
    assert best is not None
    return best


def possible(trace: Trace, limit: int, smallest: int) -> bool:
    """Whether there is a plan."""
    return _choose(trace, limit, smallest) is not None


def _movable(trace: Trace, smallest: int) -> list[list[int]]:
    """Blocks that can leave, the one with the longest time until its use first.

    Parameters come last. That one is away before its first use and after its last is one choice.
    """
    clock = np.concatenate([[0.0], np.cumsum(trace.seconds)])
    last, found = len(trace.order), list[tuple[bool, float, list[int]]]()
    ends = {b.weight: number for number, b in enumerate(trace.blocks) if b.used >= last}
    for number, block in enumerate(trace.blocks):
        if not block.movable or block.nbytes < smallest:
            continue
        together = [number]
        if block.early and block.used < last and trace.blocks[ends[block.weight]].movable:
            together.append(ends[block.weight])
        elif block.weight >= 0 and block.used >= last and not block.early:
            continue
        windows = [_window(trace, n) for n in together]
        away = sum(clock[window.stop] - clock[window.start] for window in windows)
        if any(window.start < window.stop for window in windows):
            found.append((block.weight >= 0, -away, together))
    return [together for _, _, together in sorted(found)]


def _window(trace: Trace, number: int) -> slice:
    """The intervals in which a block can be away."""
    block = trace.blocks[number]
    return slice(min(block.left + 1, block.used), block.used)


def _choose(trace: Trace, target: int, smallest: int) -> frozenset[int] | None:
    """A smallest set whose leaving brings the iteration to `target` bytes; None if there is none.

    Smallest: none of it can stay.
    """
    curve, moved, paged = trace.resident(), list[list[int]](), 0
    if curve.max(initial=0) <= target:
        return frozenset()
    for together in _movable(trace, smallest):
        windows = [curve[_window(trace, number)] for number in together]
        nbytes = trace.blocks[together[0]].nbytes
        if any(window.max(initial=0) > target for window in windows):
            for window in windows:
                window -= nbytes
            paged = _page(trace, curve, paged, nbytes * trace.blocks[together[0]].early)
            moved.append(together)
            if curve.max() <= target:
                break
    else:
        return None
    for together in reversed(moved.copy()):
        windows = [curve[_window(trace, number)] for number in together]
        nbytes = trace.blocks[together[0]].nbytes
        if all(window.max(initial=0) + nbytes <= target for window in windows):
            for window in windows:
                window += nbytes
            paged = _page(trace, curve, paged, -nbytes * trace.blocks[together[0]].early)
            moved.remove(together)
    return frozenset(number for together in moved for number in together)


def _page(trace: Trace, curve: Bytes, paged: int, more: int) -> int:
    """Counts in `curve` what the optimizer's step has in memory when more parameters are paged."""
    curve[-1] += trace.in_step(paged + more) - trace.in_step(paged)
    return paged + more


def _no_plan(trace: Trace, limit: int, smallest: int) -> NoPlanError:
    """Names what is missing."""
    movable = {number for together in _movable(trace, smallest) for number in together}
    curve = trace.resident(movable)
    short = int(curve.max()) - limit
    return NoPlanError(
        f"no plan keeps this iteration within {limit} bytes ({size_text(limit)}): with every saved "
        f"tensor gone that can go it is {short} bytes ({size_text(short)}) short; raise the limit "
        f"to {limit + short} bytes, make the batch smaller, or checkpoint the largest layers",
        short,
    )


def _schedule(trace: Trace, limit: int, rates: Rates, moved: frozenset[int]) -> Plan:
    """When each of `moved` leaves and returns, and what that costs."""
    curve = trace.resident(moved)
    release = _releases(trace, limit, rates, moved, curve)
    fetch = _fetches(trace, limit, moved, release, curve)
    plan = Plan(limit, peak=int(curve.max(initial=trace.base)), curve=curve.tolist())
    for number in sorted(moved):
        plan.moves[number] = Move(
            number, trace.blocks[number].nbytes, release[number], fetch[number]
        )
    _predict(trace, rates, plan)
    return plan


def _releases(
    trace: Trace, limit: int, rates: Rates, moved: frozenset[int], curve: Bytes
) -> dict[int, int]:
    """The event at which each block's memory is given up; what stays longer goes into `curve`.

    As soon as its copy is done by the clock; before, with a wait, where the limit demands it.
    """
    release = {number: -1 for number in moved if trace.blocks[number].early}
    leaving: list[tuple[int, float]] = []  # blocks and when their copies are done
    clock = free = 0.0
    ready = _ready(trace, moved)
    for event, number in enumerate(trace.order):
        while leaving and leaving[0][1] <= clock:
            release[leaving.pop(0)[0]] = event
        if number in moved and trace.blocks[number].weight >= 0:
            release.setdefault(number, trace.blocks[number].left + 1)
        for first in ready[event]:
            free = max(clock, free) + rates.out(trace.blocks[first].nbytes)
            leaving.append((first, free))
        while leaving:
            held = [n for n, _ in leaving if trace.blocks[n].left < event < trace.blocks[n].used]
            load = curve[event] + sum(trace.blocks[n].nbytes for n in held)
            if load <= limit or not held:
                curve[event] = load
                break
            while (head := leaving.pop(0))[0] != held[0]:
                release[head[0]] = event
            release[head[0]] = event
            clock = max(clock, head[1])
        for gone in [n for n, _ in leaving if trace.blocks[n].used <= event]:
            release[gone] = event  # used before it had left
            leaving = [pair for pair in leaving if pair[0] != gone]
        clock += trace.seconds[event]
    return release | {number: len(trace.order) - 1 for number, _ in leaving}


def _ready(trace: Trace, moved: Iterable[int]) -> list[list[int]]:
    """For each event the blocks whose copies out begin: the program holds them no more."""
    found: list[list[int]] = [[] for _ in trace.order]
    for number in sorted(moved):
        if trace.blocks[number].weight < 0:
            found[trace.blocks[number].left + 1].append(number)
    return found


def _fetches(
    trace: Trace, limit: int, moved: frozenset[int], release: dict[int, int], curve: Bytes
) -> dict[int, int]:
    """The event at which each copy back begins: as early as there is room for it until its use.

    Copies come back in the order of use, so none begins before the one that is needed sooner.
    """
    fetch: dict[int, int] = {}
    last = 0
    for number in sorted(moved, key=lambda n: trace.blocks[n].used):
        block = trace.blocks[number]
        if block.unused or block.used >= len(trace.order):
            fetch[number] = len(trace.order)
            continue
        first = max(last, release[number] + 1, block.left + 1)
        if first >= block.used:
            fetch[number] = block.used
            continue
        full = np.flatnonzero(curve[first : block.used] + block.nbytes > limit)
        first = min(first + int(full[-1]) + 1 if len(full) else first, block.used)
        curve[first : block.used] += block.nbytes
        fetch[number] = last = first
    return fetch


def _predict(trace: Trace, rates: Rates, plan: Plan) -> None:
    """Runs the plan on a clock and notes its times."""
    release, fetch = plan.at(len(trace.order))
    out_done: dict[int, float] = {}
    back_done: dict[int, float] = {}
    clock = out_free = back_free = copying = 0.0
    ready = _ready(trace, plan.moves)
    for event, number in enumerate(trace.order):
        for first in ready[event]:
            nbytes = plan.moves[first].nbytes
            out_done[first] = out_free = max(clock, out_free) + rates.out(nbytes)
            copying += rates.out(nbytes)
        for gone in release[event]:
            clock = max(clock, out_done.get(gone, 0.0))
        clock = max(clock, back_done.get(number, 0.0))
        for wanted in fetch[event]:
            if plan.moves[wanted].release >= trace.blocks[wanted].used:
                continue  # it never left
            nbytes = plan.moves[wanted].nbytes
            back_done[wanted] = back_free = max(clock, back_free) + rates.back(nbytes)
            copying += rates.back(nbytes)
            if wanted == number:
                clock = back_free
        clock += trace.seconds[event]
    plan.seconds = clock
    plan.exposed = max(0.0, clock - sum(trace.seconds))
    plan.hidden = max(0.0, copying - plan.exposed)
