"""Gradients: what goes backward through every operation.

The loss of rank r is the sum of its weights times its output. What must come back is the operation
transposed, over the ranks; gathers and broadcasts average instead of summing, as Horovod has it.
"""

from __future__ import annotations

import numpy as np
from hvd_frames import Frame
from hvd_harness import RANK, RANKS, SIZE, Array, case, given, rows, same

FLOATS = ["float32", "float64"]


def weights(rank: int, *shape: int) -> Array:
    return given(rank, *shape, salt=7)


def weigh(output: Array) -> Array:
    return weights(RANK, *np.shape(output))


def all_weights(*shape: int) -> Array:
    return np.stack([weights(rank, *shape) for rank in RANKS])


@case
def gradient_of_allreduce(f: Frame) -> None:
    for dtype in FLOATS:
        for op, expected in (
            ("Sum", all_weights(4, 3).sum(0)),
            ("Average", all_weights(4, 3).mean(0)),
        ):
            (gradient,) = f.gradient(
                *("allreduce", f"{dtype}.{op}", [given(RANK, 4, 3)], weigh, dtype),
                op=getattr(f.hvd, op),
            )
            same(gradient, expected, (dtype, op))


@case
def gradient_of_a_scaled_allreduce(f: Frame) -> None:
    (gradient,) = f.gradient(
        *("allreduce", "x", [given(RANK, 9)], weigh),
        op=f.hvd.Sum,
        prescale_factor=0.5,
        postscale_factor=4.0,
    )
    same(gradient, 2 * all_weights(9).sum(0))


@case
def gradient_of_grouped_allreduce(f: Frame) -> None:
    shapes = [(5,), (2, 3), (1,)]
    values = [given(RANK, *shape) for shape in shapes]
    gradients = f.gradient("grouped_allreduce", "x", values, weigh, op=f.hvd.Average)
    for shape, gradient in zip(shapes, gradients, strict=True):
        same(gradient, all_weights(*shape).mean(0), shape)


def my_part(count: int, columns: int) -> Array:
    """The rows that this rank gave, of everyone's weights averaged: it gave RANK + count."""
    starts = np.cumsum([0, *(rank + count for rank in RANKS)])
    whole = all_weights(int(starts[-1]), columns).mean(0)
    return whole[starts[RANK] : starts[RANK + 1]]


@case
def gradient_of_allgather(f: Frame) -> None:
    for dtype in FLOATS:
        (gradient,) = f.gradient("allgather", dtype, [given(RANK, RANK + 2, 3)], weigh, dtype)
        same(gradient, my_part(2, 3), dtype)


@case
def gradient_of_grouped_allgather(f: Frame) -> None:
    values = [given(RANK, RANK + 1, 2), given(RANK, RANK + 3, 4)]
    gradients = f.gradient("grouped_allgather", "x", values, weigh)
    same(gradients[0], my_part(1, 2))
    same(gradients[1], my_part(3, 4))


@case
def gradient_of_broadcast(f: Frame) -> None:
    for root in RANKS:
        (gradient,) = f.gradient(
            *("broadcast", str(root), [given(RANK, 4, 3)], weigh), root_rank=root
        )
        total = all_weights(4, 3).mean(0)
        same(gradient, total if root == RANK else np.zeros((4, 3)), root)


@case
def gradient_of_alltoall(f: Frame) -> None:
    """What rank b got of rank a's rows weighs as b weighs them."""
    for splits in (None, [RANK + other + 1 for other in RANKS]):
        mine = [2] * SIZE if splits is None else splits
        got = {b: [2 if splits is None else a + b + 1 for a in RANKS] for b in RANKS}
        options = {} if splits is None else {"splits": splits}
        (gradient,) = f.gradient(
            *("alltoall", "equal" if splits is None else "unequal"),
            *([given(RANK, sum(mine), 3)], weigh),
            **options,
        )
        parts = []
        for b in RANKS:
            start = sum(got[b][:RANK])
            parts.append(weights(b, sum(got[b]), 3)[start : start + mine[b]])
        same(gradient, np.concatenate(parts), splits)


def scattered(count: int, columns: int) -> Array:
    """Every rank's weights of its part, below one another."""
    parts = [rows(rank, count) for rank in RANKS]
    return np.concatenate([weights(r, parts[r].stop - parts[r].start, columns) for r in RANKS])


@case
def gradient_of_reducescatter(f: Frame) -> None:
    for dtype in FLOATS:
        for op, factor in (("Sum", SIZE), ("Average", 1)):
            (gradient,) = f.gradient(
                *("reducescatter", f"{dtype}.{op}", [given(RANK, SIZE + 1, 3)], weigh, dtype),
                op=getattr(f.hvd, op),
            )
            same(gradient, factor * scattered(SIZE + 1, 3), (dtype, op))


@case
def gradient_of_grouped_reducescatter(f: Frame) -> None:
    values = [given(RANK, SIZE, 2), given(RANK, 2 * SIZE + 1, 3)]
    gradients = f.gradient("grouped_reducescatter", "x", values, weigh, op=f.hvd.Average)
    same(gradients[0], scattered(SIZE, 2))
    same(gradients[1], scattered(2 * SIZE + 1, 3))
