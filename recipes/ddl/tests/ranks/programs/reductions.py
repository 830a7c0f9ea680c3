"""allreduce and reduce_scatter: every type, operation and size class against NumPy, bit by bit."""

from __future__ import annotations

import os
import sys
from typing import Any

import ddl
import numpy as np

ddl.init()
RANK, SIZE = ddl.rank(), ddl.size()
HOSTS = [
    [rank for rank in range(SIZE) if ddl.host_name(rank) == name]
    for name in dict.fromkeys(ddl.host_name(rank) for rank in range(SIZE))
]
SOCKETS = int(os.environ.get("DDL_FAKE_SOCKETS", 1))
CHUNK = int(os.environ.get("DDL_SHM_CHUNK", 64 << 10))
FLOATS = ("float16", "float32", "float64")
INTEGERS = ("int32", "int64")


def counts(itemsize: int) -> list[int]:
    """Nothing, one, odd, the borders of the small path, of slices and of chunks, several chunks."""
    chunk = CHUNK // itemsize
    small = 8192 // itemsize
    borders = [small, small + 1, chunk - 1, chunk, chunk + 1, 5 * chunk + 7]
    many = [70 * chunk + 1] if itemsize == 8 else []  # more than twice round the slots
    return [0, 1, 2, 63, 64, 65, 1001, *borders, *many]


def small_numbers(rank: int, count: int, dtype: str) -> np.ndarray[Any, Any]:
    """Numbers whose sums and products are exact in every type."""
    return (np.arange(count) % 3 + rank % 2 + 1).astype(dtype)


def same(got: np.ndarray[Any, Any], expected: np.ndarray[Any, Any], what: str) -> None:
    """Fail unless both have the same values. NumPy's own check is slow: only for its message."""
    if not np.array_equal(got, expected):
        np.testing.assert_array_equal(got, expected, what)


def check_exact(dtype: str) -> None:
    for count in counts(np.dtype(dtype).itemsize):
        every = np.stack([small_numbers(rank, count, dtype) for rank in range(SIZE)])
        mine = every[RANK].copy()
        expected = {
            "sum": every.sum(0, dtype=dtype),
            "prod": every.prod(0, dtype=dtype),
            "min": every.min(0),
            "max": every.max(0),
        }
        if dtype in FLOATS:
            wide = np.float64 if dtype == "float64" else np.float32
            expected["average"] = (every.sum(0, dtype=wide) / wide(SIZE)).astype(dtype)
        for op, result in expected.items():
            where = f"{dtype} x {count}, {op}"
            same(ddl.allreduce(mine, op), result, where)
            out = np.full_like(mine, 9)
            assert ddl.allreduce(mine, op, out=out) is out
            same(out, result, f"{where}, out")
            same(mine, every[RANK], f"{where}: the input has changed")
            again = mine.copy()
            assert ddl.allreduce_(again, op) is again
            same(again, result, f"{where}, in place")
            blocks = np.stack([mine + np.array(block, dtype) for block in range(SIZE)])
            if op in ("sum", "max"):
                shift = RANK * SIZE if op == "sum" else RANK
                same(
                    ddl.reduce_scatter(blocks, op)[0],
                    result + np.array(shift, dtype),
                    f"reduce_scatter {where}",
                )


def levelwise(
    every: list[np.ndarray[Any, Any]], divisor: float = 1, sockets: int = 1
) -> np.ndarray[Any, Any]:
    """The sum in the order of ranks in a socket, of sockets, of hosts, rounded after each of these.

    Averages are divided on the last level, in 16 bits partly, by a power of two, on the first.
    """
    dtype = every[0].dtype
    wide = np.float64 if dtype == "float64" else np.float32

    def add(parts: list[np.ndarray[Any, Any]], by: float) -> np.ndarray[Any, Any]:
        total = parts[0].astype(wide)
        for part in parts[1:]:
            total = total + part.astype(wide)
        return (total / wide(by)).astype(dtype)

    levels = (sockets > 1) + (len(HOSTS) > 1)
    first = 2.0 ** np.ceil(np.log2(divisor)) if dtype == "float16" and levels else 1.0
    totals = []
    for host in HOSTS:
        own = [[every[rank] for rank in host[socket::sockets]] for socket in range(sockets)]
        sums = [add(parts, first) for parts in own] if sockets > 1 else own[0]
        at_host = 1.0 if sockets > 1 else first
        totals.append(add(sums, at_host if len(HOSTS) > 1 else divisor / first))
    return totals[0] if len(HOSTS) == 1 else add(totals, divisor / first)


def check_order(dtype: str) -> None:
    """Rounded sums, the same on every rank."""
    count = 3 * CHUNK // np.dtype(dtype).itemsize + 5
    every = [np.random.default_rng(rank).normal(size=count).astype(dtype) for rank in range(SIZE)]
    same(ddl.allreduce(every[RANK]), levelwise(every, 1, SOCKETS), dtype)
    same(ddl.allreduce(every[RANK], "average"), levelwise(every, SIZE, SOCKETS), dtype)
    tiled = np.tile(every[RANK], SIZE)
    same(ddl.reduce_scatter(tiled), levelwise(every), f"reduce_scatter {dtype}")
    same(ddl.reduce_scatter(tiled, "average"), levelwise(every, SIZE), f"reduce_scatter {dtype}")


def check_one_rounding() -> None:
    """2048 + 1 stays 2048 in float16: only a sum that is rounded once per level is right."""
    for count in (5, CHUNK):
        every = [np.full(count, 2048 if rank == 0 else 1, np.float16) for rank in range(SIZE)]
        is_small = every[RANK].nbytes <= 8192 and len(HOSTS) == 1  # read by all from all
        expected = levelwise(every, 1, 1 if is_small else SOCKETS)
        same(ddl.allreduce(every[RANK]), expected, "float16")
        blocks = ddl.reduce_scatter(np.tile(every[RANK], SIZE))
        same(blocks, levelwise(every), "float16 reduce_scatter")


def check_special_values() -> None:
    """NaN from any rank is passed on; integers wrap; infinities and signed zeros survive."""
    for source in range(SIZE):
        for dtype in FLOATS:
            x = np.full(100, np.nan if source == RANK else 1, dtype)
            for op in ("sum", "min", "max"):
                assert np.isnan(ddl.allreduce(x, op)).all(), (source, dtype, op)
    top = np.full(3, np.iinfo(np.int32).max, np.int32)
    with np.errstate(over="ignore"):
        expected = (top * np.int32(SIZE)).astype(np.int32)
    same(ddl.allreduce(top), expected, "overflow")
    assert np.isposinf(ddl.allreduce(np.full(3, 60000, np.float16), "sum")).all() or SIZE == 1
    assert (ddl.allreduce(np.full(3, 60000, np.float16), "average") == 60000).all()


def check_bfloat16() -> None:
    import torch

    for count in counts(2):
        every = torch.stack([(torch.arange(count) % 3 + rank + 1.0) for rank in range(SIZE)])
        x = every[RANK].to(torch.bfloat16)
        assert torch.equal(ddl.allreduce(x), every.sum(0).to(torch.bfloat16))
        assert torch.equal(ddl.allreduce(x, "max"), every.max(0).values.to(torch.bfloat16))
        assert torch.equal(ddl.allreduce_(x.clone(), "average"), every.mean(0).to(torch.bfloat16))
    if len(HOSTS) > 1:
        return
    # 256 + 1 stays 256 in bfloat16.
    x = torch.full((CHUNK,), 256.0 if RANK == 0 else 1.0, dtype=torch.bfloat16)
    expected = torch.tensor(256.0 + SIZE - 1).to(torch.bfloat16)
    assert (ddl.allreduce(x) == expected).all()


match sys.argv[1]:
    case "exact":
        for name in FLOATS + INTEGERS:
            check_exact(name)
        check_special_values()
    case "order":
        for name in FLOATS:
            check_order(name)
        check_one_rounding()
    case "bfloat16":
        check_bfloat16()
