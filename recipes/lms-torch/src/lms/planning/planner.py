"""The planner: from one iteration's trace and a limit in bytes to the smallest swap set.

Longest reuse distance first: the first storage to be saved is the last to be used. It has the whole
forward pass to leave and the whole backward pass to return. `lms.planning.schedule` says when.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lms.paging.device import TransferRates
from lms.planning.floor import Floor, floor_of, no_plan
from lms.planning.plan import Plan
from lms.planning.schedule import make_schedule
from lms.planning.trace import MemoryCurve, Trace

#: Bytes that `make_plan` tries to keep free, in units of the largest block.
_HEADROOMS = (0.0, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0)
#: A plan that moves more bytes must be this much faster.
_GAIN = 0.002


def make_plan(
    trace: Trace,
    limit: int,
    rates: TransferRates,
    smallest: int = 1,
    headrooms: Sequence[float] = _HEADROOMS,
) -> Plan:
    """The fastest of the small plans for an iteration like `trace`.

    Args:
        limit: bytes on the device, all of the program's.
        smallest: blocks of fewer bytes stay.
        headrooms: bytes to keep free for copies in flight, in units of the largest block; the
            fastest is taken.

    Raises:
        NoPlanError: not even with everything gone that can go.
    """
    largest = max((block.nbytes for block in trace.blocks), default=0)
    best: Plan | None = None
    chosen: set[frozenset[int]] = set()
    for headroom in headrooms:
        moved = _choose_blocks(trace, limit - int(headroom * largest), smallest)
        if moved is None:
            if best is None:
                floor = least_memory(trace, smallest)
                raise no_plan(floor, limit, floor.total)
            break
        if moved in chosen:
            continue
        chosen.add(moved)
        plan = make_schedule(trace, limit, rates, moved)
        if best is None or plan.seconds < best.seconds * (1 - _GAIN):
            best = plan
        if plan.exposed == 0:
            break
    assert best is not None
    return best


def least_memory(trace: Trace, smallest: int, more: int = 0) -> Floor:
    """The memory below which there is no plan; the arguments are those of `make_plan`.

    Args:
        more: bytes that the next such iteration begins with beside those that this one has.
    """
    movable = {number for together in _movable(trace, smallest) for number in together}
    return floor_of(trace, movable, more)


def is_possible(trace: Trace, limit: int, smallest: int) -> bool:
    """Whether there is a plan."""
    return _choose_blocks(trace, limit, smallest) is not None


def _movable(trace: Trace, smallest: int) -> list[list[int]]:
    """Blocks that can leave, the one with the longest time until its use first.

    Parameters come last. A parameter's absence before its first use and after its last is one
    choice.
    """
    clock = np.concatenate([[0.0], np.cumsum(trace.seconds)])
    last, found = len(trace.order), list[tuple[bool, float, list[int]]]()
    ends = {b.parameter: number for number, b in enumerate(trace.blocks) if b.used >= last}
    for number, block in enumerate(trace.blocks):
        if not block.movable or block.nbytes < smallest:
            continue
        together = [number]
        if block.precedes_iteration and block.used < last:
            end = ends[block.parameter]
            together += [end] * trace.blocks[end].movable
        elif block.parameter >= 0 and block.used >= last and not block.precedes_iteration:
            continue
        windows = [_away_window(trace, n) for n in together]
        away = sum(clock[window.stop] - clock[window.start] for window in windows)
        if any(window.start < window.stop for window in windows):
            found.append((block.parameter >= 0, -away, together))
    return [together for _, _, together in sorted(found)]


def _away_window(trace: Trace, number: int) -> slice:
    """The intervals in which a block can be away."""
    block = trace.blocks[number]
    return slice(min(block.last_held + 1, block.used), block.used)


def _choose_blocks(trace: Trace, target: int, smallest: int) -> frozenset[int] | None:
    """A smallest set whose leaving brings the iteration to `target` bytes; None if there is none.

    Smallest: none of it can stay.
    """
    curve, moved, paged = trace.resident(), list[list[int]](), 0
    if curve.max(initial=0) <= target:
        return frozenset()
    for together in _movable(trace, smallest):
        windows = [curve[_away_window(trace, number)] for number in together]
        nbytes, in_step = _bytes_of(trace, together)
        if any(window.max(initial=0) > target for window in windows):
            for window in windows:
                window -= nbytes
            paged = _add_paged(trace, curve, paged, in_step)
            moved.append(together)
            if curve.max() <= target:
                break
    else:
        return None
    for together in reversed(moved.copy()):
        windows = [curve[_away_window(trace, number)] for number in together]
        nbytes, in_step = _bytes_of(trace, together)
        if all(window.max(initial=0) + nbytes <= target for window in windows):
            for window in windows:
                window += nbytes
            paged = _add_paged(trace, curve, paged, -in_step)
            moved.remove(together)
    return frozenset(number for together in moved for number in together)


def _bytes_of(trace: Trace, together: list[int]) -> tuple[int, int]:
    """Bytes of blocks that leave together, and of them those that the optimizer's step needs."""
    block = trace.blocks[together[0]]
    return block.nbytes, block.nbytes * block.precedes_iteration


def _add_paged(trace: Trace, curve: MemoryCurve, paged: int, more: int) -> int:
    """Counts in `curve` the memory of the optimizer's step when more parameters are paged."""
    curve[-1] += trace.needed_in_step(paged + more) - trace.needed_in_step(paged)
    return paged + more
