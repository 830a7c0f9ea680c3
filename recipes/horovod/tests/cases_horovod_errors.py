"""Ranks that do not ask for the same: each of them gets an error, and the job goes on.

After every refusal the same operation, asked for alike, must work again.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from hvd_frames import Frame
from hvd_harness import RANK, RANKS, SIZE, case, everyone, given, refused, same

ODD_ONE = SIZE - 1  # the rank that asks for something else


def refused_then_usable(f: Frame, ask: Callable[[], object], words: str) -> None:
    if SIZE == 1:
        return
    for _ in range(2):  # the second time, too: nothing of the first may be cached
        refused(ask, words, *f.errors)
    out = f.call("allreduce", "after", given(RANK, 6), op=f.hvd.Sum)
    same(out, everyone(6).sum(0))


@case
def allreduce_of_other_shapes(f: Frame) -> None:
    for i, (usual, other) in enumerate([((17,), (18,)), ((17,), (17, 1)), ((2, 3), (3, 2))]):
        shape = other if RANK == ODD_ONE else usual
        refused_then_usable(
            f,
            lambda i=i, shape=shape: f.call(
                "allreduce", f"x{i}", given(RANK, *shape), op=f.hvd.Sum
            ),
            "Mismatched allreduce tensor shapes",
        )
    out = f.call("allreduce", "x0", given(RANK, 17), op=f.hvd.Sum)
    same(out, everyone(17).sum(0))


@case
def allreduce_of_other_types(f: Frame) -> None:
    dtype = "float64" if RANK == ODD_ONE else "int32"
    refused_then_usable(
        f,
        lambda: f.call("allreduce", "x", given(RANK, 17), dtype, op=f.hvd.Sum),
        "Mismatched data types",
    )


@case
def allreduce_with_other_reductions(f: Frame) -> None:
    op = f.hvd.Max if RANK == ODD_ONE else f.hvd.Min
    refused_then_usable(
        f,
        lambda: f.call("allreduce", "x", given(RANK, 17), op=op),
        "Mismatched reduction operation",
    )


@case
def allreduce_with_other_factors(f: Frame) -> None:
    factor = 2.0 if RANK == ODD_ONE else 0.5
    for words in ({"prescale_factor": factor}, {"postscale_factor": factor}):
        refused_then_usable(
            f,
            lambda words=words: f.call("allreduce", "x", given(RANK, 17), op=f.hvd.Sum, **words),
            "Mismatched prescale and/or postscale factors",
        )


@case
def grouped_allreduce_with_one_other_shape(f: Frame) -> None:
    shape = (4,) if RANK == ODD_ONE else (5,)
    refused_then_usable(
        f,
        lambda: f.call(
            "grouped_allreduce", "x", [given(RANK, 3), given(RANK, *shape)], op=f.hvd.Sum
        ),
        "Mismatched allreduce tensor shapes",
    )


@case
def allgather_of_other_columns(f: Frame) -> None:
    for i, shape in enumerate([(2, 5), (2, 3, 1)]):
        value = given(RANK, *(shape if RANK == ODD_ONE else (2, 3)))
        refused_then_usable(
            f,
            lambda i=i, value=value: f.call("allgather", f"x{i}", value),
            "Mismatched allgather tensor shapes",
        )


@case
def allgather_of_other_types(f: Frame) -> None:
    dtype = "float32" if RANK == ODD_ONE else "int32"
    refused_then_usable(
        f, lambda: f.call("allgather", "x", given(RANK, 2, 3), dtype), "Mismatched data types"
    )


@case
def allgather_of_a_scalar(f: Frame) -> None:
    words = "0 dimensions" if f.mode == "graph" else "rank-zero tensor"  # when it is traced
    refused_then_usable(f, lambda: f.call("allgather", "x", given(RANK)), words)


@case
def broadcast_from_other_roots(f: Frame) -> None:
    refused_then_usable(
        f,
        lambda: f.call("broadcast", "x", given(RANK, 5), root_rank=RANK),
        "Mismatched broadcast root ranks",
    )


@case
def broadcast_of_other_shapes_and_types(f: Frame) -> None:
    value = given(RANK, 6 if RANK == ODD_ONE else 5)
    refused_then_usable(
        f,
        lambda: f.call("broadcast", "x", value, root_rank=0),
        "Mismatched broadcast tensor shapes",
    )
    dtype = "float32" if RANK == ODD_ONE else "int32"
    refused_then_usable(
        f,
        lambda: f.call("broadcast", "y", given(RANK, 5), dtype, root_rank=0),
        "Mismatched data types",
    )


@case
def broadcast_from_a_rank_that_is_not_there(f: Frame) -> None:
    refused(
        lambda: f.call("broadcast", "x", given(RANK, 5), root_rank=SIZE),
        "root rank",
        *f.errors,
        KeyError,
    )
    out = f.call("allreduce", "after", given(RANK, 6), op=f.hvd.Sum)
    same(out, everyone(6).sum(0))


@case
def alltoall_of_other_columns_and_types(f: Frame) -> None:
    value = given(RANK, SIZE, 4 if RANK == ODD_ONE else 3)
    refused_then_usable(
        f, lambda: f.call("alltoall", "x", value), "Mismatched alltoall tensor shapes"
    )
    dtype = "float32" if RANK == ODD_ONE else "int32"
    refused_then_usable(
        f, lambda: f.call("alltoall", "y", given(RANK, SIZE, 3), dtype), "Mismatched data types"
    )


@case
def alltoall_with_wrong_splits(f: Frame) -> None:
    """What a rank can see by itself it refuses alone, on every rank here."""
    value = given(RANK, 2 * SIZE, 3)
    for name, splits, words in (
        ("many", [3] * SIZE, "greater than the first dimension"),
        ("count", [1] * (SIZE + 1), "does not equal number of workers"),
    ):
        refused(lambda name=name, splits=splits: f.alltoall(name, value, splits), words, *f.errors)
    if SIZE > 1:
        refused(
            lambda: f.call("alltoall", "uneven", given(RANK, 2 * SIZE + 1, 3)),
            "not an even multiple of the number of workers",
            *f.errors,
        )
    out = f.call("alltoall", "after", value)
    same(out, np.concatenate([given(r, 2 * SIZE, 3)[2 * RANK : 2 * RANK + 2] for r in RANKS]))


@case
def reducescatter_of_other_shapes_and_types(f: Frame) -> None:
    value = given(RANK, 2 * SIZE, 4 if RANK == ODD_ONE else 3)
    refused_then_usable(
        f,
        lambda: f.call("reducescatter", "x", value, op=f.hvd.Sum),
        "Mismatched reducescatter tensor shapes",
    )
    dtype = "float32" if RANK == ODD_ONE else "int32"
    refused_then_usable(
        f,
        lambda: f.call("reducescatter", "y", given(RANK, SIZE), dtype, op=f.hvd.Sum),
        "Mismatched data types",
    )


@case
def reducescatter_of_a_scalar(f: Frame) -> None:
    refused_then_usable(
        f,
        lambda: f.call("reducescatter", "x", given(RANK), op=f.hvd.Sum),
        "scalar",
    )
