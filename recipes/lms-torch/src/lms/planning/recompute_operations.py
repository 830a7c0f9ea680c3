"""The choice of storages that single operations make again, where that is faster than copying."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from lms.errors import NoPlanError
from lms.paging.device import TransferRates
from lms.planning.plan import Plan
from lms.planning.planner import make_plan
from lms.planning.trace import Trace

#: A plan in which operations are repeated must be so much faster than one that only copies.
_GAIN = 0.002
#: Blocks that are made from each other, one after the other, at most.
_DEEPEST = 64
#: Fewer than the planner's: many plans are compared.
_HEADROOMS = (0.0, 2.0, 8.0)
#: The shares of the candidates that are tried at first, and how often the best is refined.
_SHARES = (1 / 8, 1 / 4, 1 / 2, 3 / 4, 1)
_REFINED = 3


class _Choice:
    """Blocks that are computed again, added one by one while the memory suffices.

    Attributes:
        blocks: in the order in which they were added.
        needed: by block the event at which it must be in memory, if that is before its own use.
    """

    def __init__(self, trace: Trace, limit: int, smallest: int) -> None:
        self.trace, self.limit = trace, limit
        self.blocks = list[int]()
        self.needed = dict[int, int]()
        moved = {n for n, b in enumerate(trace.blocks) if b.movable and b.nbytes >= smallest}
        self._floor = trace.resident(moved)  # of memory, when all leaves that can
        self._depth = dict[int, int]()

    def add(self, number: int) -> bool:
        """Adds a block, if it and those that it is made from fit into memory when it is made."""
        made = self.trace.recomputations[number]
        depth = 1 + max((self._depth.get(parent, 0) for parent in made.parents), default=0)
        if depth > _DEEPEST:
            return False
        changes = dict[int, int]()
        pending = [(number, self._event(number, changes))]
        while pending:
            child, event = pending.pop()
            for parent in self.trace.recomputations[child].parents:
                if event < self._event(parent, changes):
                    changes[parent] = event
                    if parent in self._depth:  # chosen
                        pending.append((parent, event))
        most = self.limit - self.trace.blocks[number].nbytes
        spans = [(event, self._event(n, {}), n) for n, event in changes.items()]
        for start, end, other in spans:
            self._floor[start:end] += self.trace.blocks[other].nbytes
        event = self._event(number, changes)
        ends = [(event, event + 1), *((start, end) for start, end, _ in spans)]
        if any(self._floor[a:b].max(initial=0) + made.workspace > most for a, b in ends):
            for start, end, other in spans:
                self._floor[start:end] -= self.trace.blocks[other].nbytes
            return False
        self.needed |= changes
        self._depth[number] = depth
        self.blocks.append(number)
        return True

    def _event(self, number: int, changes: dict[int, int]) -> int:
        """The event at which a block must be in memory."""
        used = self.trace.blocks[number].used
        return changes.get(number, self.needed.get(number, used))


def with_repeated(trace: Trace, again: Iterable[int]) -> Trace:
    """The iteration as it would be if some blocks were computed again: they leave without a copy.

    Each is made when it is used first, or another is made from it, and stays until it was used.
    """
    chosen = sorted(again, key=lambda n: -trace.recomputations[n].position)
    other, seconds = np.array(trace.other_bytes, np.int64), list(trace.seconds)
    blocks = list(trace.blocks)
    for number in chosen:  # all that are made from it come before it
        made, block = trace.recomputations[number], blocks[number]
        for parent in made.parents:
            if block.used < blocks[parent].used:
                blocks[parent] = replace(blocks[parent], used=block.used)
    for number in chosen:
        made, block = trace.recomputations[number], blocks[number]
        other[block.packed : block.last_held + 1] += block.nbytes
        other[max(block.used, block.last_held + 1) : block.freed + 1] += block.nbytes
        other[block.used] += made.workspace
        seconds[block.used] += made.seconds
        blocks[number] = replace(block, nbytes=0, movable=False)
    return replace(trace, other_bytes=other.tolist(), seconds=seconds, blocks=blocks)


def _candidates(trace: Trace, limit: int, smallest: int) -> list[int]:
    """The blocks that could be computed again and whose absence would help; the cheapest first."""
    over = np.concatenate([[0], np.cumsum(trace.resident() > limit)])
    found: list[tuple[float, int]] = []
    for number, made in trace.recomputations.items():
        block = trace.blocks[number]
        if not block.movable or block.unused or block.nbytes < smallest:
            continue
        if block.last_held + 1 < block.used and over[block.used] > over[block.last_held + 1]:
            found.append((made.seconds / block.nbytes, number))
    return [number for _, number in sorted(found)]


def repeat_operations(
    trace: Trace, plan: Plan, limit: int, rates: TransferRates, smallest: int
) -> Plan:
    """The plan in which some blocks are computed again, or `plan` if none is faster.

    Args:
        plan: the one for `trace` by which nothing is; the other arguments made it.
    """
    if plan.exposed <= _GAIN * plan.seconds or not trace.recomputations:
        return plan
    choice = _Choice(trace, limit, smallest)
    for number in _candidates(trace, limit, smallest):
        choice.add(number)
    blocks = choice.blocks
    found: dict[int, Plan | None] = {0: plan}

    def try_first(count: int) -> None:
        if count not in found:
            found[count] = _plan_with(trace, blocks[:count], limit, rates, smallest)

    for share in _SHARES:
        try_first(round(share * len(blocks)))
    step = max(1, len(blocks) // 8)
    for _ in range(_REFINED):
        middle = min(found, key=lambda count: _seconds(found[count]))
        for count in (middle - step, middle + step):
            if 0 < count <= len(blocks):
                try_first(count)
        step = max(1, step // 2)
    best = min(found.values(), key=_seconds)
    assert best is not None
    return best if best.seconds < plan.seconds * (1 - _GAIN) else plan


def _seconds(plan: Plan | None) -> float:
    return float("inf") if plan is None else plan.seconds


def _plan_with(
    trace: Trace, again: Sequence[int], limit: int, rates: TransferRates, smallest: int
) -> Plan | None:
    """The plan by which some blocks are computed again; None if there is none."""
    try:
        plan = make_plan(with_repeated(trace, again), limit, rates, smallest, _HEADROOMS)
    except NoPlanError:
        return None
    return replace(
        plan,
        again=frozenset(again),
        again_bytes=sum(trace.blocks[number].nbytes for number in again),
        again_seconds=sum(trace.recomputations[number].seconds for number in again),
    )
