"""No plan is faster than the bound, on random traces; prints how many were compared.

python lms_bound_holds.py BENCH_FOLDER COUNT
"""

from __future__ import annotations

import random
import sys

sys.path.insert(0, sys.argv[1])

import lms
from lms.paging.device import TransferRates
from lms.planning.planner import make_plan
from lms.planning.recompute_operations import repeat_operations
from lms.planning.trace import Recomputation, Trace, TracedBlock
from lms_bound import lower_bound

MIB = 1 << 20


def random_trace(draw: random.Random) -> Trace:
    """Blocks that are saved, held for a while, and used in about the reverse order."""
    count = draw.randint(2, 12)
    order = [*range(count), *sorted(range(count), key=lambda n: -n - draw.choice([0, 0, 3]))]
    trace = Trace(order=order, keys=[None] * len(order))
    for number in range(count):
        used = order.index(number, count)
        held = draw.randint(number, min(number + 2, used))
        freed = min(used + draw.choice([0, 0, 2]), 2 * count - 1)
        nbytes = draw.randint(1, 8) * MIB
        trace.blocks.append(TracedBlock(nbytes, number, held, used, freed, draw.random() < 0.9))
        parent = draw.randrange(number) if number else None
        if parent is not None and trace.blocks[parent].freed >= used and draw.random() < 0.7:
            seconds, workspace = draw.uniform(0.1, 4), draw.randint(0, 2) * MIB
            made = Recomputation(seconds, (parent,), workspace, number)
            trace.recomputations[number] = made
    trace.seconds = [draw.uniform(0.2, 2) for _ in order]
    trace.other_bytes = [draw.randint(0, 4) * MIB for _ in order]
    return trace


def main() -> None:
    """Compares."""
    draw, compared, again = random.Random(1), 0, 0
    for _ in range(int(sys.argv[2])):
        trace = random_trace(draw)
        limit = int(trace.demand() * draw.uniform(0.4, 1))
        rates = TransferRates(draw.uniform(0.5, 8) * MIB, draw.uniform(0.5, 8) * MIB, 0)
        try:
            plan = make_plan(trace, limit, rates)
        except lms.NoPlanError:
            continue
        moves = lower_bound(trace, limit, rates, 1, recompute=False)
        assert moves is not None
        assert moves <= plan.seconds * (1 + 1e-6), (moves, plan.seconds)
        best = repeat_operations(trace, plan, limit, rates, 1)
        least = lower_bound(trace, limit, rates, 1, recompute=True)
        assert least is not None
        assert least <= moves * (1 + 1e-6)
        assert least <= best.seconds * (1 + 1e-6), (least, best.seconds)
        compared, again = compared + 1, again + bool(best.again)
    print(compared, again)


if __name__ == "__main__":
    main()
