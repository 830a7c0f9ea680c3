"""Operations that reduce: allreduce, reducescatter, their grouped forms, Adasum."""

from __future__ import annotations

import numpy as np
from hvd_frames import FLOATS, Frame
from hvd_harness import (
    RANK,
    RANKS,
    REDUCTIONS,
    SHAPES,
    SIZE,
    adasum,
    case,
    close,
    everyone,
    given,
    refused,
    rows,
    same,
)


def reduce_all(f: Frame, op: str, dtypes: tuple[str, ...]) -> None:
    for dtype in dtypes:
        for shape in SHAPES:
            name = f"{dtype}.{len(shape)}.{shape[0] if shape else 0}"
            out = f.call("allreduce", name, given(RANK, *shape), dtype, op=getattr(f.hvd, op))
            same(out, REDUCTIONS[op](everyone(*shape)), name)


@case
def allreduce_sum(f: Frame) -> None:
    reduce_all(f, "Sum", f.reduced)


@case
def allreduce_average(f: Frame) -> None:
    reduce_all(f, "Average", FLOATS)


@case
def allreduce_min(f: Frame) -> None:
    reduce_all(f, "Min", f.reduced)


@case
def allreduce_max(f: Frame) -> None:
    reduce_all(f, "Max", f.reduced)


@case
def allreduce_product(f: Frame) -> None:
    reduce_all(f, "Product", f.reduced)


@case
def allreduce_averages_when_no_op_is_named(f: Frame) -> None:
    out = f.call("allreduce", "x", given(RANK, 9))
    same(out, everyone(9).mean(0))
    out = f.call("allreduce", "sum", given(RANK, 9), average=False)
    same(out, everyone(9).sum(0))


@case
def allreduce_of_whole_numbers_averages(f: Frame) -> None:
    for dtype in ("int32", "int64"):
        out = f.call("allreduce", dtype, SIZE * given(RANK, 9), dtype, op=f.hvd.Average)
        same(out, everyone(9).sum(0), dtype)


@case
def averages_of_whole_numbers_are_exact(f: Frame) -> None:
    """Above 2**53, too, where float64 has gaps; all ranks give the same."""
    great = np.array([2**58 + 1, -(2**58) - 1, 2**53 + 1, 7])
    total = f.put(great, "int64")
    out = f.hvd.allreduce(total, op=f.hvd.Average, name=f.name("great"))
    assert out.cpu().numpy().tolist() == great.tolist(), out


@case
def allreduce_of_great_and_negative_numbers(f: Frame) -> None:
    """Sums that only a 64-bit type holds, and signs."""
    great = 2.0**40 * given(RANK, 33)
    for dtype in ("int64", "float64"):
        out = f.call("allreduce", dtype, great, dtype, op=f.hvd.Sum)
        same(out, 2.0**40 * everyone(33).sum(0), dtype)
    for dtype in f.reduced:
        if dtype == "uint8":
            continue
        value = given(RANK, 33) * (-1) ** RANK
        signed = np.stack([given(rank, 33) * (-1) ** rank for rank in RANKS])
        for op in ("Sum", "Min", "Max", "Product"):
            out = f.call("allreduce", f"{dtype}.{op}", value, dtype, op=getattr(f.hvd, op))
            same(out, REDUCTIONS[op](signed), f"{dtype} {op}")


@case
def allreduce_of_nothing(f: Frame) -> None:
    for shape in ((0,), (3, 0)):
        out = f.call("allreduce", str(len(shape)), np.zeros(shape), op=f.hvd.Sum)
        same(out, np.zeros(shape))


@case
def allreduce_of_infinities_and_nan(f: Frame) -> None:
    value = np.array([np.inf, -np.inf, np.nan if RANK == SIZE - 1 else 1.0, 2.0])
    for dtype in FLOATS:
        out = f.call("allreduce", dtype, value, dtype, op=f.hvd.Sum)
        assert np.isposinf(out[0]), out
        assert np.isneginf(out[1]), out
        assert np.isnan(out[2]), out
        assert out[3] == 2 * SIZE, out


@case
def allreduce_scaled_before_and_after(f: Frame) -> None:
    total = everyone(17).sum(0)
    for dtype in FLOATS:
        for before, after in ((0.5, 1.0), (1.0, 4.0), (0.5, 2.0)):
            out = f.call(
                "allreduce",
                f"{dtype}.{before}.{after}",
                given(RANK, 17),
                dtype,
                op=f.hvd.Sum,
                prescale_factor=before,
                postscale_factor=after,
            )
            same(out, total * before * after, (dtype, before, after))
    for dtype in ("int32", "int64"):
        out = f.call(
            *("allreduce", dtype, given(RANK, 17), dtype),
            op=f.hvd.Sum,
            prescale_factor=2.0,
            postscale_factor=3.0,
        )
        same(out, total * 6, dtype)


@case
def allreduce_again_and_again_by_one_name(f: Frame) -> None:
    """The response cache: the same request, then another shape and another op by its name."""
    for turn in range(4):
        out = f.call("allreduce", "x", given(RANK, 50, salt=turn), op=f.hvd.Sum)
        same(out, everyone(50, salt=turn).sum(0), turn)
    out = f.call("allreduce", "x", given(RANK, 7, 3), op=f.hvd.Sum)
    same(out, everyone(7, 3).sum(0))
    out = f.call("allreduce", "x", given(RANK, 7, 3), op=f.hvd.Max)
    same(out, everyone(7, 3).max(0))
    out = f.call("allreduce", "x", given(RANK, 7, 3), "float64", op=f.hvd.Max)
    same(out, everyone(7, 3).max(0))


@case
def allreduce_beyond_the_fusion_threshold(f: Frame) -> None:
    """68 MiB; the threshold is 64 MiB unless the run sets another."""
    count = 17 * 1024 * 1024 + 3
    value = np.resize(given(RANK, 1009), count)
    out = f.call("allreduce", "x", value, op=f.hvd.Sum)
    same(out, np.resize(everyone(1009).sum(0), count))


@case
def grouped_allreduce(f: Frame) -> None:
    shapes = [(1,), (17,), (3, 5, 7), (4001,)]
    for dtype in f.reduced:
        for op in ("Sum", "Min") if dtype not in FLOATS else ("Sum", "Average", "Min", "Max"):
            values = [given(RANK, *shape, salt=i) for i, shape in enumerate(shapes)]
            outputs = f.call(
                "grouped_allreduce", f"{dtype}.{op}", values, dtype, op=getattr(f.hvd, op)
            )
            for i, (shape, out) in enumerate(zip(shapes, outputs, strict=True)):
                same(out, REDUCTIONS[op](everyone(*shape, salt=i)), (dtype, op, shape))


@case
def grouped_allreduce_of_one_and_of_many(f: Frame) -> None:
    for count in (1, 40):
        values = [given(RANK, 5 + i, salt=i) for i in range(count)]
        outputs = f.call("grouped_allreduce", str(count), values, op=f.hvd.Sum)
        for i, out in enumerate(outputs):
            same(out, everyone(5 + i, salt=i).sum(0), i)


@case
def grouped_allreduce_scaled(f: Frame) -> None:
    outputs = f.call(
        "grouped_allreduce",
        "x",
        [given(RANK, 5), given(RANK, 2, 2)],
        op=f.hvd.Sum,
        prescale_factor=2.0,
        postscale_factor=0.25,
    )
    same(outputs[0], everyone(5).sum(0) / 2)
    same(outputs[1], everyone(2, 2).sum(0) / 2)


@case
def allreduce_adasum(f: Frame) -> None:
    for dtype, tolerance in (("float32", 1e-5), ("float64", 1e-12)):
        values = [given(rank, 1001, top=9) / 8 for rank in RANKS]
        out = f.call("allreduce", dtype, values[RANK], dtype, op=f.hvd.Adasum)
        close(out, adasum(values), tolerance, dtype)


@case
def allreduce_adasum_of_float16(f: Frame) -> None:
    values = [given(rank, 1001, top=9) / 8 for rank in RANKS]
    out = f.call("allreduce", "x", values[RANK], "float16", op=f.hvd.Adasum)
    close(out, adasum(values), 5e-3)


@case
def adasum_of_like_and_of_unlike_gradients(f: Frame) -> None:
    """Parallel vectors are averaged, orthogonal ones are added."""
    out = f.call("allreduce", "like", np.full(64, 3.0), op=f.hvd.Adasum)
    close(out, np.full(64, 3.0))
    value = np.zeros(64)
    value[RANK] = 5.0
    out = f.call("allreduce", "unlike", value, op=f.hvd.Adasum)
    close(out, np.concatenate([np.full(SIZE, 5.0), np.zeros(64 - SIZE)]))


@case
def reducescatter(f: Frame) -> None:
    for dtype in f.scattered:
        for op in ("Sum", "Average") if dtype in FLOATS else ("Sum",):
            for count in (SIZE, 4 * SIZE, 4 * SIZE + 1, 2 * SIZE - 1):
                name = f"{dtype}.{op}.{count}"
                value = given(RANK, count, 3)
                out = f.call("reducescatter", name, value, dtype, op=getattr(f.hvd, op))
                same(out, REDUCTIONS[op](everyone(count, 3))[rows(RANK, count)], name)


@case
def reducescatter_of_fewer_rows_than_ranks(f: Frame) -> None:
    out = f.call("reducescatter", "x", given(RANK, 1, 5), op=f.hvd.Sum)
    same(out, everyone(1, 5).sum(0)[rows(RANK, 1)])


@case
def reducescatter_averages_when_no_op_is_named(f: Frame) -> None:
    out = f.call("reducescatter", "x", given(RANK, SIZE, 3))
    same(out, everyone(SIZE, 3).mean(0)[rows(RANK, SIZE)])


@case
def reducescatter_scaled(f: Frame) -> None:
    for dtype in FLOATS:
        for before, after in ((0.5, 1.0), (1.0, 4.0), (2.0, 0.25)):
            out = f.call(
                *("reducescatter", f"{dtype}.{before}.{after}", given(RANK, SIZE + 1, 3), dtype),
                op=f.hvd.Sum,
                prescale_factor=before,
                postscale_factor=after,
            )
            total = everyone(SIZE + 1, 3).sum(0) * before * after
            same(out, total[rows(RANK, SIZE + 1)], (dtype, before, after))


@case
def reducescatter_knows_only_sum_and_average(f: Frame) -> None:
    for op in ("Min", "Max", "Product"):
        refused(
            lambda op=op: f.call("reducescatter", op, given(RANK, SIZE), op=getattr(f.hvd, op)),
            "only supports",
            *f.errors,
        )


@case
def grouped_reducescatter(f: Frame) -> None:
    counts = [SIZE, 3 * SIZE + 1, 2 * SIZE]
    for dtype in f.scattered:
        values = [given(RANK, count, 2, salt=count) for count in counts]
        outputs = f.call("grouped_reducescatter", dtype, values, dtype, op=f.hvd.Sum)
        for count, out in zip(counts, outputs, strict=True):
            same(out, everyone(count, 2, salt=count).sum(0)[rows(RANK, count)], (dtype, count))
