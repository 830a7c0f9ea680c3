"""Ranks that run out of batches before the others: join().

Rank r has r + 1 batches. Who has joined gives nothing to the reductions of the others.
"""

from __future__ import annotations

import numpy as np
from hvd_frames import Frame
from hvd_harness import RANK, RANKS, SIZE, case, everyone, given, refused, same


def join(f: Frame) -> int:
    return int(f.run(f.join))


@case
def sums_with_uneven_batches(f: Frame) -> None:
    for dtype in f.reduced:
        for batch in range(RANK + 1):
            out = f.call(
                *("allreduce", f"{dtype}.{batch}", given(RANK, 11, salt=batch), dtype),
                op=f.hvd.Sum,
            )
            active = [rank for rank in RANKS if rank >= batch]
            same(out, everyone(11, ranks=active, salt=batch).sum(0), (dtype, batch))
        assert join(f) in RANKS


@case
def averages_count_the_joined_ranks(f: Frame) -> None:
    """They give zeros, and the sum is divided by the number of all ranks."""
    for batch in range(RANK + 1):
        out = f.call("allreduce", str(batch), given(RANK, 11, salt=batch), op=f.hvd.Average)
        active = [rank for rank in RANKS if rank >= batch]
        same(out, everyone(11, ranks=active, salt=batch).sum(0) / SIZE, batch)
    join(f)


@case
def batches_by_one_name(f: Frame) -> None:
    """As training does it: the response of the first batch is in the cache."""
    for batch in range(3 * (RANK + 1)):
        out = f.call("allreduce", "x", given(RANK, 11, salt=batch), op=f.hvd.Sum)
        active = [rank for rank in RANKS if 3 * (rank + 1) > batch]
        same(out, everyone(11, ranks=active, salt=batch).sum(0), batch)
    join(f)


@case
def grouped_sums_with_uneven_batches(f: Frame) -> None:
    for batch in range(RANK + 1):
        values = [given(RANK, 11, salt=batch), given(RANK, 2, 3, salt=batch)]
        outputs = f.call("grouped_allreduce", str(batch), values, op=f.hvd.Sum)
        active = [rank for rank in RANKS if rank >= batch]
        same(outputs[0], everyone(11, ranks=active, salt=batch).sum(0), batch)
        same(outputs[1], everyone(2, 3, ranks=active, salt=batch).sum(0), batch)
    join(f)


@case
def all_learn_who_joined_last(f: Frame) -> None:
    """Rank 0 cannot join before the others' last reduction... the last one does alone."""
    for last in sorted({0, SIZE - 1}):
        if last == RANK:
            for batch in range(3):
                f.call("allreduce", f"{last}.{batch}", given(RANK, 5), op=f.hvd.Sum)
        assert join(f) == last, last


@case
def extremes_and_products_with_joined_ranks(f: Frame) -> None:
    """A joined rank has no value: as if it gave zeros, the result would be wrong without a word.

    Either the result is that of the ranks which have not joined, or they are told.
    """
    if SIZE == 1:
        return
    others = everyone(11, ranks=RANKS[1:])
    expected = {"Min": others.min(0), "Max": -others.min(0), "Product": others.prod(0)}
    found = dict(expected)
    for op in expected:
        if RANK > 0:
            value = -given(RANK, 11) if op == "Max" else given(RANK, 11)
            try:
                found[op] = f.call("allreduce", op, value, op=getattr(f.hvd, op))
            except f.errors as error:
                if "join" not in str(error).lower():
                    raise
        join(f)
    for op in expected:
        same(found[op], expected[op], op)


@case
def only_reductions_go_with_join(f: Frame) -> None:
    if SIZE == 1:
        return
    for operation, options in (
        ("allgather", {}),
        ("broadcast", {"root_rank": SIZE - 1}),
        ("alltoall", {}),
        ("reducescatter", {"op": f.hvd.Sum}),
    ):
        if RANK > 0:
            refused(
                lambda o=operation, w=options: f.call(o, o, given(RANK, 2 * SIZE), **w),
                "not supported with Join",
                *f.errors,
            )
        join(f)
        out = f.call("allreduce", f"after.{operation}", given(RANK, 6), op=f.hvd.Sum)
        same(out, everyone(6).sum(0), operation)


@case
def everyone_joins_at_once(f: Frame) -> None:
    for _ in range(3):
        assert join(f) in RANKS
    out = f.call("allgather", "after", given(RANK, 2))
    same(out, np.concatenate([given(r, 2) for r in RANKS]))
