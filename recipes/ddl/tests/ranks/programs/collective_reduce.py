"""reduce: every type, operation, root and size class against NumPy, bit by bit."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import ddl
import numpy as np
from helpers import error_of

ddl.init()
RANK, SIZE = ddl.rank(), ddl.size()
CHUNK = int(os.environ.get("DDL_SHM_CHUNK", 64 << 10))
SOCKETS = int(os.environ.get("DDL_FAKE_SOCKETS", 1))
FLOATS = ("float16", "float32", "float64")
INTEGERS = ("int32", "int64")

Array = np.ndarray[Any, Any]


def numbers(rank: int, count: int, dtype: str) -> Array:
    """Numbers whose sums and products are exact in every type."""
    return (np.arange(count) % 3 + rank % 2 + 1).astype(dtype)


def oracle(every: Array, dtype: str) -> dict[str, Array]:
    """The result of each operation, by NumPy."""
    results = {
        "sum": every.sum(0, dtype=dtype),
        "prod": every.prod(0, dtype=dtype),
        "min": every.min(0),
        "max": every.max(0),
    }
    if dtype in FLOATS:
        wide = np.float64 if dtype == "float64" else np.float32
        size = len(every)
        results["average"] = (every.sum(0, dtype=wide) / wide(size)).astype(dtype)
    return results


def same(got: Array | None, expected: Array, root: int, what: str, rank: int = RANK) -> None:
    """The root has the result, bit by bit, and the others have nothing."""
    if rank != root:
        assert got is None, what
    elif not np.array_equal(got, expected):
        np.testing.assert_array_equal(got, expected, what)


def check_exact(dtype: str) -> None:
    """Nothing, one, the borders of slices and chunks, and more chunks than there are slots."""
    chunk = CHUNK // np.dtype(dtype).itemsize
    many = [70 * chunk + 1] if dtype == "int64" else []
    for count in [0, 1, 63, 65, 1001, chunk - 1, chunk, chunk + 1, 5 * chunk + 7, *many]:
        every = np.stack([numbers(rank, count, dtype) for rank in range(SIZE)])
        mine = every[RANK].copy()
        for number, (op, result) in enumerate(oracle(every, dtype).items()):
            for root in range(SIZE) if count <= chunk else [(count + number) % SIZE]:
                where = f"{dtype} x {count}, {op} to {root}"
                same(ddl.reduce(mine, root, op), result, root, where)
                out = np.full_like(mine, 9)
                got = ddl.reduce(mine, root, op, out=out)
                assert got is (out if root == RANK else None), where
                same(got, result, root, f"{where}, out")
                assert root == RANK or (out == 9).all(), where
                same(ddl.reduce_async(mine, root, op).wait(), result, root, f"{where}, async")
                assert np.array_equal(mine, every[RANK]), f"{where}: the input has changed"
                again = mine.copy()
                same(ddl.reduce(again, root, op, out=again), result, root, f"{where}, in place")


def check_order(dtype: str) -> None:
    """Rounded sums are those of allreduce. On several sockets, allreduce sums by socket first."""
    if SOCKETS > 1:
        return
    for count in (5, 3 * CHUNK // np.dtype(dtype).itemsize + 5):
        x = np.random.default_rng(RANK).normal(size=count).astype(dtype)
        for op in ("sum", "average"):
            root = count % SIZE
            same(ddl.reduce(x, root, op), ddl.allreduce(x, op), root, f"{dtype} x {count}, {op}")


def check_special_values() -> None:
    """A NaN of any rank is passed on; integers wrap."""
    for source in range(SIZE):
        x = np.full(100, np.nan if source == RANK else 1, np.float32)
        for op in ("sum", "min", "max"):
            got = ddl.reduce(x, SIZE - 1, op)
            assert got is None or np.isnan(got).all(), (source, op)
    top = np.full(3, np.iinfo(np.int32).max, np.int32)
    with np.errstate(over="ignore"):
        expected = (top * np.int32(SIZE)).astype(np.int32)
    same(ddl.reduce(top), expected, 0, "overflow")


def check_group(members: list[int]) -> None:
    group = ddl.new_group(members)
    if group is None:
        return
    for count in (1, 3 * CHUNK):
        for root in range(group.size):
            got = ddl.reduce(np.full(count, RANK, np.int64), root, group=group)
            same(got, np.full(count, sum(members)), root, f"{members} to {root}", group.rank)
    group.free()


def check_beside_others() -> None:
    """Asynchronous reductions between other collectives, waited for in the end."""
    handles, moved = [], []
    for i in range(20):
        x = np.full(100 * i, RANK + i, np.int64)
        handles.append(ddl.reduce_async(x, i % SIZE))
        moved.append(ddl.allreduce_async(x))
        if i % 5 == 0:
            ddl.barrier()
    for i, (handle, other) in enumerate(zip(handles, moved, strict=True)):
        total = np.full(100 * i, SIZE * (SIZE - 1) // 2 + SIZE * i)
        same(handle.wait(), total, i % SIZE, f"reduction {i}")
        assert np.array_equal(other.wait(), total)


def raises(kind: type[Exception], text: str, call: Callable[[], object]) -> None:
    try:
        call()
    except Exception as error:
        found: Exception | None = error
    else:
        found = None
    assert isinstance(found, kind), f"{text}: {found!r}"
    assert text in str(found), found


def check_wrong_arguments() -> None:
    x, integers = np.ones(4, np.float32), np.ones(2, np.int32)
    raises(TypeError, "x: expected a NumPy array", lambda: ddl.reduce([1, 2]))
    raises(TypeError, "x: cannot reduce bool", lambda: ddl.reduce(np.ones(2, bool)))
    raises(ValueError, "op: unknown operation 'mean'", lambda: ddl.reduce(x, 0, "mean"))
    raises(ValueError, "reduce: the average of", lambda: ddl.reduce(integers, 0, "average"))
    raises(ValueError, "ireduce: the average", lambda: ddl.reduce_async(integers, 0, "average"))
    raises(ValueError, f"root is {SIZE} but must be", lambda: ddl.reduce(x, SIZE))
    raises(ValueError, "root is -1 but must be", lambda: ddl.reduce_async(x, -1))
    raises(ValueError, "out: 3 elements", lambda: ddl.reduce(x, RANK, out=np.ones(3, "f4")))
    both = np.ones(5, np.float32)
    raises(ValueError, "overlap", lambda: ddl.reduce(both[:-1], RANK, out=both[1:]))


def check_disagreement() -> None:
    """All ranks have the error, and go on."""
    last = RANK == SIZE - 1
    for call, usual, odd in (
        (lambda: ddl.reduce(np.ones(8), SIZE - 1 if last else 0), "root 0", f"root {SIZE - 1}"),
        (lambda: ddl.reduce(np.ones(4 if last else 3)), "3 x float64", "4 x float64"),
        (lambda: ddl.reduce(np.ones(8), 0, "min" if last else "max"), "max, root 0", "min, root"),
        (lambda: ddl.barrier() if last else ddl.reduce(np.ones(8)), " reduce(8", "barrier()"),
    ):
        text = error_of(call)
        assert text.startswith("MISMATCH"), text
        assert usual in text, text
        assert odd in text, text
        same(ddl.reduce(np.ones(9)), np.full(9, float(SIZE)), 0, "after a disagreement")


check_wrong_arguments()
for name in FLOATS + INTEGERS:
    check_exact(name)
for name in FLOATS:
    check_order(name)
check_special_values()
for chosen in ([0], list(range(SIZE))[::-1], list(range(0, SIZE, 2))):
    check_group(chosen)
check_beside_others()
if SIZE > 1:
    check_disagreement()
