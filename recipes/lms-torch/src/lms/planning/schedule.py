"""The schedule of a plan: when each block leaves and returns, and the time that this takes.

Copies out run one after the other. Each begins when the program lets go of the storage, which may
change until then. Copies in run in the order of use, and each kind has its own engine. Where the
limit leaves no space for copies in flight, computing waits for the head of the queue and no longer.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

import numpy as np

from lms.paging.device import TransferRates
from lms.planning.plan import Move, Plan
from lms.planning.trace import MemoryCurve, Trace


def make_schedule(trace: Trace, limit: int, rates: TransferRates, moved: frozenset[int]) -> Plan:
    """The plan by which each of `moved` leaves and returns, with its predicted time."""
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
    trace: Trace, limit: int, rates: TransferRates, moved: frozenset[int], curve: MemoryCurve
) -> dict[int, int]:
    """The event at which each block's memory is given up; `curve` gets the blocks that stay longer.

    It is given up as soon as its copy is done by the clock; before, with a wait, if the limit
    demands it.
    """
    release = {number: -1 for number in moved if trace.blocks[number].precedes_iteration}
    leaving: OrderedDict[int, float] = OrderedDict()  # blocks, and when their copies are done
    clock = free = 0.0
    held = 0  # bytes of the blocks that are leaving
    ready, uses = _copies_out(trace, moved), _uses(trace, moved)

    def leave(number: int, event: int) -> float:
        nonlocal held
        release[number] = event
        held -= trace.blocks[number].nbytes
        return leaving.pop(number)

    for event, number in enumerate(trace.order):
        while leaving and leaving[first := next(iter(leaving))] <= clock:
            leave(first, event)
        if number in moved and trace.blocks[number].parameter >= 0:
            release.setdefault(number, trace.blocks[number].last_held + 1)
        for first in ready[event]:
            free = max(clock, free) + rates.seconds_out(trace.blocks[first].nbytes)
            leaving[first] = free
            held += trace.blocks[first].nbytes
        for used in (*uses[event], *(n for n in ready[event] if trace.blocks[n].used < event)):
            if used in leaving:  # used before it had left
                leave(used, event)
        while leaving and curve[event] + held > limit:
            clock = max(clock, leave(next(iter(leaving)), event))
        curve[event] += held
        clock += trace.seconds[event]
    return release | {number: len(trace.order) - 1 for number in leaving}


def _copies_out(trace: Trace, moved: Iterable[int]) -> list[list[int]]:
    """For each event the blocks whose copies out begin: the program holds them no more."""
    found: list[list[int]] = [[] for _ in trace.order]
    for number in sorted(moved):
        if trace.blocks[number].parameter < 0:
            found[trace.blocks[number].last_held + 1].append(number)
    return found


def _uses(trace: Trace, moved: Iterable[int]) -> list[list[int]]:
    """For each event the blocks that are used first there."""
    found: list[list[int]] = [[] for _ in trace.order]
    for number in moved:
        if trace.blocks[number].used < len(found):
            found[trace.blocks[number].used].append(number)
    return found


def _fetches(
    trace: Trace, limit: int, moved: frozenset[int], release: dict[int, int], curve: MemoryCurve
) -> dict[int, int]:
    """The event at which each copy back begins: as early as there is space for it until its use.

    Copies come back in the order of use, so none begins before the one that is needed sooner.
    """
    fetch: dict[int, int] = {}
    last = 0
    for number in sorted(moved, key=lambda n: trace.blocks[n].used):
        block = trace.blocks[number]
        if block.unused or block.used >= len(trace.order):
            fetch[number] = len(trace.order)
            continue
        first = max(last, release[number] + 1, block.last_held + 1)
        if first >= block.used:
            fetch[number] = block.used
            continue
        first = _room_begins(curve, first, block.used, limit - block.nbytes)
        curve[first : block.used] += block.nbytes
        fetch[number] = last = first
    return fetch


def _room_begins(curve: MemoryCurve, first: int, end: int, most: int) -> int:
    """The first of the intervals up to `end`, not before `first`, that all hold `most` at most."""
    width = 32
    while first < end:
        start = max(first, end - width)
        full = np.flatnonzero(curve[start:end] > most)
        if len(full):
            return start + int(full[-1]) + 1
        end, width = start, 2 * width
    return first


def _predict(trace: Trace, rates: TransferRates, plan: Plan) -> None:
    """Runs the plan on a clock and notes its times."""
    release, fetch = plan.by_event(len(trace.order))
    out_done: dict[int, float] = {}
    back_done: dict[int, float] = {}
    clock = out_free = back_free = copying = 0.0
    ready, uses = _copies_out(trace, plan.moves), _uses(trace, plan.moves)
    for event, number in enumerate(trace.order):
        for first in ready[event]:
            nbytes = plan.moves[first].nbytes
            out_done[first] = out_free = max(clock, out_free) + rates.seconds_out(nbytes)
            copying += rates.seconds_out(nbytes)
        for gone in release[event]:
            clock = max(clock, out_done.get(gone, 0.0))
        for needed in (number, *uses[event]):
            clock = max(clock, back_done.get(needed, 0.0))
        for wanted in fetch[event]:
            if plan.moves[wanted].release >= trace.blocks[wanted].used:
                continue  # it never left
            nbytes = plan.moves[wanted].nbytes
            back_done[wanted] = back_free = max(clock, back_free) + rates.seconds_back(nbytes)
            copying += rates.seconds_back(nbytes)
            if trace.blocks[wanted].used == event:
                clock = back_free
        clock += trace.seconds[event]
    plan.seconds = clock
    plan.exposed = max(0.0, clock - sum(trace.seconds))
    plan.hidden = max(0.0, copying - plan.exposed)
