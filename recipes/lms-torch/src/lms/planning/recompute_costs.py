"""The choice of layers to compute again in backward, where that is faster than copying.

The trace of an iteration predicts the iteration in which some layers keep nothing; the planner then
tells how long that takes. Copies and computing run side by side, so the best is often a mixture: as
many layers as the copies cannot serve in time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lms.errors import NoPlanError
from lms.paging.device import TransferRates
from lms.planning.plan import Plan
from lms.planning.planner import is_possible, make_plan
from lms.planning.trace import LayerCall, Trace

#: An iteration must become so much shorter.
_GAIN = 0.01
#: Layers that save within this ratio per second of computing are taken for alike.
_ALIKE = 1.25
#: Fewer than the planner's: a plan for each of many traces must not take long.
_HEADROOMS = (0.0, 2.0, 8.0)
#: The numbers of layers that are tried at first.
_TRIES = 8


@dataclass(frozen=True)
class RecomputeCost:
    """Bytes that computing a layer again frees, and seconds that it takes."""

    nbytes: int
    seconds: float


def recompute_costs(trace: Trace) -> dict[int, RecomputeCost]:
    """The costs by layer, of all its calls together; layers that would free nothing have none."""
    found: dict[int, RecomputeCost] = {}
    for call in trace.calls:
        nbytes = sum(trace.blocks[number].nbytes for number in _saved_by(trace, call))
        if nbytes:
            old = found.get(call.layer, RecomputeCost(0, 0.0))
            found[call.layer] = RecomputeCost(
                old.nbytes + nbytes, old.seconds + _seconds_of(trace, call)
            )
    return found


def without_saved(trace: Trace, layers: Iterable[int]) -> Trace:
    """The iteration as it would be if some layers saved nothing and were computed again.

    Before backward first needs a layer's saved tensors, all of them are made once more, and stay
    until they have been used.
    """
    chosen = set(layers)
    other, seconds = np.array(trace.other_bytes, np.int64), list(trace.seconds)
    blocks = list(trace.blocks)
    for call in trace.calls:
        gone = _saved_by(trace, call) if call.layer in chosen else []
        if not gone:
            continue
        start = max(call.end, min(blocks[number].used for number in gone)) - 1
        for number in gone:
            block = blocks[number]
            other[block.packed : min(block.last_held + 1, start)] += block.nbytes
            other[start : block.freed + 1] += block.nbytes
            blocks[number] = replace(block, nbytes=0, movable=False)
        inside = trace.other_bytes[call.first : call.end]
        other[start] += max(inside) - min(inside)
        seconds[start] += _seconds_of(trace, call)
    return replace(trace, other_bytes=other.tolist(), seconds=seconds, blocks=blocks)


def choose_layers(
    trace: Trace,
    plan: Plan,
    limit: int,
    rates: TransferRates,
    smallest: int,
    allowed: Iterable[int],
    most: int,
) -> frozenset[int]:
    """The layers to compute again, beside those that are already; none if it gains too little.

    Args:
        plan: the one for `trace`; the other arguments made it.
        allowed: layers that may be chosen, at most so many.
    """
    if plan.exposed <= _GAIN * plan.seconds:
        return frozenset()
    found, free = recompute_costs(trace), set(allowed)
    gains = {
        number: cost
        for number, cost in found.items()
        if number in free and is_possible(without_saved(trace, [number]), limit, smallest)
    }
    best, chosen = plan.seconds * (1 - _GAIN), frozenset[int]()
    orders = [tuple(_by_rate(gains, arrange)) for arrange in (_spread, reversed)]
    for order in dict.fromkeys(orders):

        def cost(count: int, order: Sequence[int] = order) -> float:
            try:
                again = without_saved(trace, order[:count])
                return make_plan(again, limit, rates, smallest, _HEADROOMS).seconds
            except NoPlanError:
                return math.inf

        count, seconds = _minimum(min(most, len(order)), cost)
        if seconds < best:
            best, chosen = seconds, frozenset(order[:count])
    return chosen


def _saved_by(trace: Trace, call: LayerCall) -> list[int]:
    """The blocks that only this call saves, for this iteration's backward."""
    return [
        number
        for number, block in enumerate(trace.blocks)
        if call.first <= block.packed < call.end
        and number not in call.kept
        and block.parameter < 0
        and call.end <= block.used < len(trace.order) - 1
        and not block.unused
    ]


def _seconds_of(trace: Trace, call: LayerCall) -> float:
    """The seconds that a call computes; its first save comes before all computing."""
    return sum(trace.seconds[call.first : call.end])


def _by_rate(
    gains: dict[int, RecomputeCost], arrange: Callable[[Sequence[int]], Iterable[int]]
) -> list[int]:
    """The layers that free most in a second first, those alike as `arrange` has them."""
    alike: dict[int, list[int]] = {}
    for number, cost in sorted(gains.items()):
        rate = math.inf if cost.seconds <= 0 else cost.nbytes / cost.seconds
        bucket = 1 << 30 if rate == math.inf else round(math.log(rate) / math.log(_ALIKE))
        alike.setdefault(bucket, []).append(number)
    return [n for bucket in sorted(alike, reverse=True) for n in arrange(alike[bucket])]


def _spread(layers: Sequence[int]) -> Iterable[int]:
    """The layers in an order of which every beginning is spread evenly over all layers.

    So copies have computing to hide behind all the time. The order is van der Corput's sequence:
    the indices by their reversed bits.
    """
    width = max(1, (len(layers) - 1).bit_length())
    indices = (int(f"{n:0{width}b}"[::-1], 2) for n in range(1 << width))
    return [layers[index] for index in indices if index < len(layers)]


def _minimum(most: int, cost: Callable[[int], float]) -> tuple[int, float]:
    """About where in 0 to `most` a function is least that falls and then rises, and its value."""
    found: dict[int, float] = {}
    step = max(1, most // _TRIES)
    for count in [*range(0, most, step), most]:
        found[count] = cost(count)
    while step > 1:
        step //= 2
        middle = min(found, key=found.__getitem__)
        for count in (middle - step, middle + step):
            if 0 <= count <= most and count not in found:
                found[count] = cost(count)
    best = min(found, key=lambda count: (found[count], count))
    return best, found[best]
