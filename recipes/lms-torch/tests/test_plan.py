"""The planner alone, on traces made by hand and at random."""

import lms
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lms.paging.device import TransferRates
from lms.planning.plan import best_share
from lms.planning.planner import make_plan
from lms.planning.trace import PackKey, Trace, TracedBlock

MIB = 1 << 20


def stack(sizes: list[int], seconds: list[float] | None = None, base: int = 0) -> Trace:
    """Layers that save one block each in forward, and use them in the reverse order."""
    count = len(sizes)
    order = [*range(count), *reversed(range(count))]
    blocks = [
        TracedBlock(size, n, min(n + 1, count - 1), 2 * count - 1 - n, 2 * count - 1 - n)
        for n, size in enumerate(sizes)
    ]
    keys = [*(PackKey(n, size, (size,), "") for n, size in enumerate(sizes)), *[None] * count]
    return Trace(order, keys, seconds or [1.0] * 2 * count, [base] * 2 * count, blocks, base)


def test_nothing_moves_when_all_fits() -> None:
    trace = stack([MIB] * 8)
    plan = make_plan(trace, 8 * MIB, TransferRates(MIB, MIB))
    assert (plan.moves, plan.exposed, plan.seconds) == ({}, 0, 16)
    assert plan.peak == trace.demand() == 8 * MIB


def test_the_longest_away_goes_first_and_all_copies_hide() -> None:
    plan = make_plan(stack([MIB] * 8), 6 * MIB, TransferRates(4 * MIB, 4 * MIB))
    assert sorted(plan.moves) == [0, 1]
    assert plan.exposed == 0
    assert plan.hidden == pytest.approx(4 * 0.25, rel=0.01)
    assert plan.peak <= 6 * MIB


def test_below_the_point_without_stalls_the_wait_is_what_copying_takes() -> None:
    rates = TransferRates(MIB / 2, MIB / 2, 0)  # a copy takes two layers' time
    trace = stack([MIB] * 16)
    plan = make_plan(trace, 6 * MIB, rates)
    best = 32 / best_share(16, 16, 10 * MIB, MIB / 2)
    assert best == 40
    assert best <= plan.seconds <= best * 1.15
    assert len(plan.moves) <= 12


def test_best_share() -> None:
    assert best_share(1, 2, 0, 1) == 1
    assert best_share(1, 2, 1, 1) == 1
    assert best_share(1, 2, 2, 1) == 3 / 4
    assert best_share(1, 2, 4, 1) == 3 / 8


def test_no_plan() -> None:
    with pytest.raises(lms.NoPlanError, match=r"it is 1048576 bytes \(1 MiB\) short") as error:
        make_plan(stack([MIB] * 8, base=4 * MIB), 5 * MIB, TransferRates(MIB, MIB))
    assert error.value.shortfall == MIB
    make_plan(
        stack([MIB] * 8, base=4 * MIB), 5 * MIB + error.value.shortfall, TransferRates(MIB, MIB)
    )


def test_what_is_small_or_held_stays() -> None:
    trace = stack([MIB, 100, MIB, 100, MIB])
    trace.blocks[0].movable = False
    plan = make_plan(trace, int(2.2 * MIB), TransferRates(MIB, MIB), smallest=1000)
    assert sorted(plan.moves) == [2]


@settings(deadline=None, max_examples=200)
@given(
    sizes=st.lists(st.integers(1, 64), min_size=1, max_size=40),
    share=st.floats(0.05, 1.2),
    rate=st.floats(0.05, 50),
    data=st.data(),
)
def test_every_plan_holds(sizes: list[int], share: float, rate: float, data: st.DataObject) -> None:
    seconds = data.draw(st.lists(st.floats(0, 5), min_size=2 * len(sizes), max_size=2 * len(sizes)))
    trace = stack([size * MIB for size in sizes], seconds)
    limit, rates = int(share * trace.demand()), TransferRates(rate * MIB, rate * MIB, 0)
    smallest_peak = trace.resident(set(range(len(sizes)))).max()
    if smallest_peak > limit:
        with pytest.raises(lms.NoPlanError) as error:
            make_plan(trace, limit, rates)
        assert error.value.shortfall == smallest_peak - limit
        return
    plan = make_plan(trace, limit, rates)
    # Count again what is in memory, from the moves alone.
    curve = np.array(trace.other_bytes)
    for number, block in enumerate(trace.blocks):
        move = plan.moves.get(number)
        if move is None or move.release >= block.used:
            curve[block.packed : block.freed + 1] += block.nbytes
        else:
            assert block.packed <= move.release <= move.fetch <= block.used
            curve[block.packed : max(block.last_held + 1, move.release)] += block.nbytes
            curve[move.fetch : block.freed + 1] += block.nbytes
    assert curve.max() <= limit
    assert curve.tolist() == plan.curve
    assert plan.seconds == pytest.approx(sum(seconds) + plan.exposed)
