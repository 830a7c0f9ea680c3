"""Process sets: those that the job begins with, and those added and removed while it runs."""

from __future__ import annotations

from typing import Any

import numpy as np
from hvd_frames import Frame
from hvd_harness import RANK, RANKS, REDUCTIONS, SIZE, case, everyone, given, refused, same
from hvd_sets import EVEN, ODD, STATIC, added


def mine() -> tuple[Any, list[int]]:
    """The static set of this rank and its ranks."""
    return (STATIC["even"], EVEN) if RANK in EVEN else (STATIC["odd"], ODD)


@case
def sets_know_their_ranks(f: Frame) -> None:
    assert f.hvd.global_process_set.ranks == list(RANKS)
    assert f.hvd.global_process_set.process_set_id == 0
    assert f.hvd.global_process_set.size() == SIZE
    assert f.hvd.global_process_set.rank() == RANK
    if SIZE == 1:
        return
    own, ranks = mine()
    assert own.included()
    assert own.ranks == ranks
    assert own.size() == len(ranks)
    assert own.rank() == ranks.index(RANK)
    other = STATIC["odd" if RANK in EVEN else "even"]
    assert not other.included()
    assert other.size() == len(other.ranks)
    refused(other.rank, "not part of", ValueError)


@case
def reductions_in_disjoint_sets_at_once(f: Frame) -> None:
    if SIZE == 1:
        return
    own, ranks = mine()
    for dtype in f.reduced:
        for op in ("Sum", "Average", "Min", "Max", "Product"):
            if op == "Average" and not dtype.startswith("float"):
                continue
            # One name in both sets: they must not meet.
            out = f.call(
                *("allreduce", f"{dtype}.{op}", given(RANK, 21, 2), dtype),
                op=getattr(f.hvd, op),
                process_set=own,
            )
            same(out, REDUCTIONS[op](everyone(21, 2, ranks=ranks)), (dtype, op))


@case
def moves_in_sets(f: Frame) -> None:
    if SIZE == 1:
        return
    own, ranks = mine()
    for dtype in f.moved[::2]:
        for root in ranks:
            value = given(RANK, 5, 2) * (RANK + 1)
            out = f.call(
                "broadcast", f"b.{dtype}.{root}", value, dtype, root_rank=root, process_set=own
            )
            expected = given(root, 5, 2) * (root + 1)
            same(out, expected != 0 if dtype == "bool" else expected, (dtype, root))
        out = f.call("allgather", f"g.{dtype}", given(RANK, RANK + 1, 2), dtype, process_set=own)
        expected = np.concatenate([given(r, r + 1, 2) for r in ranks])
        same(out, expected != 0 if dtype == "bool" else expected, dtype)


@case
def alltoall_in_sets(f: Frame) -> None:
    if SIZE == 1:
        return
    own, ranks = mine()
    splits = [RANK + other + 1 for other in ranks]
    value = np.concatenate([np.full((RANK + b + 1, 2), 10.0 * RANK + b) for b in ranks])
    out, received = f.alltoall("x", value, splits, process_set=own)
    same(out, np.concatenate([np.full((a + RANK + 1, 2), 10.0 * a + RANK) for a in ranks]))
    assert received == [a + RANK + 1 for a in ranks], received
    count = 2 * len(ranks)
    out = f.call("alltoall", "equal", given(RANK, count, 2), process_set=own)
    me = 2 * ranks.index(RANK)
    same(out, np.concatenate([given(r, count, 2)[me : me + 2] for r in ranks]))


@case
def groups_of_tensors_in_sets(f: Frame) -> None:
    if SIZE == 1:
        return
    own, ranks = mine()
    values = [given(RANK, 5), given(RANK, 2, 3)]
    outputs = f.call("grouped_allreduce", "r", values, op=f.hvd.Sum, process_set=own)
    same(outputs[0], everyone(5, ranks=ranks).sum(0))
    same(outputs[1], everyone(2, 3, ranks=ranks).sum(0))
    outputs = f.call("grouped_allgather", "g", values, process_set=own)
    same(outputs[0], everyone(5, ranks=ranks).reshape(-1))
    same(outputs[1], everyone(2, 3, ranks=ranks).reshape(-1, 3))
    count = len(ranks)
    out = f.call("reducescatter", "s", given(RANK, 2 * count, 3), op=f.hvd.Sum, process_set=own)
    me = 2 * ranks.index(RANK)
    same(out, everyone(2 * count, 3, ranks=ranks).sum(0)[me : me + 2])


@case
def gradients_in_sets(f: Frame) -> None:
    if SIZE == 1:
        return
    own, ranks = mine()

    def weigh(output: Any) -> Any:
        return given(RANK, *np.shape(output), salt=7)

    (gradient,) = f.gradient(
        "allreduce", "r", [given(RANK, 4)], weigh, op=f.hvd.Average, process_set=own
    )
    same(gradient, everyone(4, ranks=ranks, salt=7).mean(0))
    (gradient,) = f.gradient("allgather", "g", [given(RANK, 2, 3)], weigh, process_set=own)
    me = 2 * ranks.index(RANK)
    same(gradient, everyone(2 * len(ranks), 3, ranks=ranks, salt=7).mean(0)[me : me + 2])
    (gradient,) = f.gradient(
        "broadcast", "b", [given(RANK, 4)], weigh, root_rank=ranks[0], process_set=own
    )
    root = ranks[0] == RANK
    same(gradient, everyone(4, ranks=ranks, salt=7).mean(0) if root else np.zeros(4))


@case
def sets_of_one_rank_and_overlapping_sets(f: Frame) -> None:
    if SIZE == 1:
        return
    with added(f.hvd, [0]) as first:
        if RANK == 0:
            out = f.call("allreduce", "one", given(RANK, 5), op=f.hvd.Sum, process_set=first)
            same(out, given(0, 5))
        if SIZE > 2:
            with added(f.hvd, [0, 1, 2]) as three:
                if RANK < 3:
                    out = f.call(
                        "allreduce", "three", given(RANK, 5), op=f.hvd.Sum, process_set=three
                    )
                    same(out, everyone(5, ranks=range(3)).sum(0))
        out = f.call("allreduce", "all", given(RANK, 5), op=f.hvd.Sum)
        same(out, everyone(5).sum(0))


@case
def a_set_is_added_removed_and_added_again(f: Frame) -> None:
    if SIZE == 1:
        return
    last = SIZE - 1
    for turn in range(3):
        with added(f.hvd, [last]) as alone:
            assert alone.process_set_id > 0
            assert alone.included() == (last == RANK)
            if last == RANK:
                out = f.call("allreduce", "x", given(RANK, 9), op=f.hvd.Sum, process_set=alone)
                same(out, given(last, 9), turn)
        assert alone.process_set_id is None
        assert alone.size() is None
    assert not f.hvd.remove_process_set(alone)
    assert not f.hvd.remove_process_set(f.hvd.global_process_set)


@case
def a_set_cannot_be_added_twice(f: Frame) -> None:
    if SIZE == 1:
        return
    refused(lambda: f.hvd.add_process_set(EVEN), "duplicate process set", ValueError)
    refused(lambda: f.hvd.add_process_set(list(RANKS)), "duplicate process set", ValueError)
    refused(lambda: f.hvd.ProcessSet([0.5]), "list of process ranks", ValueError)


@case
def who_is_not_a_member_is_refused(f: Frame) -> None:
    if SIZE == 1:
        return
    other = STATIC["odd" if RANK in EVEN else "even"]
    value = given(RANK, 2 * SIZE)
    usual = "not a member of the provided process set"
    for operation, words, options in (
        ("allreduce", usual, {"op": f.hvd.Sum}),
        ("allgather", usual, {}),
        ("reducescatter", "invalid process set id for this rank", {"op": f.hvd.Sum}),
        ("alltoall", usual, {}),
    ):
        refused(
            lambda o=operation, w=options: f.call(o, f"{o}.no", value, process_set=other, **w),
            words,
            *f.errors,
        )
    out = f.call("allreduce", "after", given(RANK, 5), op=f.hvd.Sum)
    same(out, everyone(5).sum(0))


@case
def who_is_not_a_member_may_not_broadcast(f: Frame) -> None:
    if SIZE == 1:
        return
    other = STATIC["odd" if RANK in EVEN else "even"]
    refused(
        lambda: f.call(
            "broadcast", "x", given(RANK, 3), root_rank=other.ranks[0], process_set=other
        ),
        "not a member of the provided process set",
        *f.errors,
    )


@case
def a_removed_set_is_refused(f: Frame) -> None:
    """By the id that it had: programs may have kept it."""
    if SIZE == 1:
        return
    own, _ = mine()
    numbers = {name: one.process_set_id for name, one in STATIC.items()}
    for one in STATIC.values():
        assert f.hvd.remove_process_set(one)
    for name, one in STATIC.items():
        one.process_set_id = numbers[name]
    try:
        refused(
            lambda: f.call("allreduce", "x", given(RANK, 3), op=f.hvd.Sum, process_set=own),
            "does not exist",
            *f.errors,
        )
    finally:
        for one in STATIC.values():
            f.hvd.add_process_set(one)


@case
def a_root_outside_the_set_is_refused(f: Frame) -> None:
    if SIZE == 1:
        return
    own, ranks = mine()
    root = next(rank for rank in RANKS if rank not in ranks)
    refused(
        lambda: f.call("broadcast", "x", given(RANK, 3), root_rank=root, process_set=own),
        "root rank",
        *f.errors,
        KeyError,
    )


@case
def adasum_in_a_set_is_refused(f: Frame) -> None:
    if SIZE == 1:
        return
    own, _ = mine()
    refused(
        lambda: f.call("allreduce", "x", given(RANK, 3), op=f.hvd.Adasum, process_set=own),
        "Adasum does not support non-global process sets",
        NotImplementedError,
    )
