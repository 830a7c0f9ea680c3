"""Every collective on GPU tensors, against the same computed on the host."""

from __future__ import annotations

import ddl
import torch
from device import COUNTS, FLOATS, GPU, INTEGERS, RANK, SIZE, every, expect, numbers


def check_allreduce(dtype: torch.dtype, count: int) -> None:
    rows = every(count, dtype)
    wanted = {
        "sum": rows.sum(0, dtype=dtype),
        "prod": rows.prod(0, dtype=dtype),
        "min": rows.amin(0),
        "max": rows.amax(0),
    }
    mine = rows[RANK].to(GPU)
    for op, result in wanted.items():
        what = f"allreduce of {count} {dtype}, {op}"
        expect(ddl.allreduce(mine, op), result, what)
        expect(mine, rows[RANK], f"{what}: the input has changed")
        again = mine.clone()
        assert ddl.allreduce_(again, op) is again
        expect(again, result, f"{what}, in place")


def check_reduce(dtype: torch.dtype, count: int) -> None:
    wanted = every(count, dtype).sum(0, dtype=dtype)
    for root in range(SIZE):
        got = ddl.reduce(numbers(RANK, count, dtype).to(GPU), root)
        assert (got is None) == (root != RANK)
        if got is not None:
            expect(got, wanted, f"reduce of {count} {dtype} to {root}")


def check_average(dtype: torch.dtype, count: int) -> None:
    got = ddl.allreduce(numbers(RANK, count, dtype).to(GPU), "average").cpu()
    wanted = every(count, torch.float64).mean(0)
    # 1/ranks is rounded, then each product, then each sum.
    tolerance = (SIZE + 2) * torch.finfo(dtype).eps
    torch.testing.assert_close(got.double(), wanted, rtol=tolerance, atol=0)


def check_reduce_scatter(dtype: torch.dtype, count: int) -> None:
    blocks = torch.stack([numbers(RANK, count, dtype) + block for block in range(SIZE)])
    wanted = every(count, dtype).sum(0, dtype=dtype) + RANK * SIZE
    expect(ddl.reduce_scatter(blocks.to(GPU))[0], wanted, f"reduce_scatter of {count} {dtype}")


def check_movement(count: int) -> None:
    rows = torch.stack([(torch.arange(count) * 7 + rank * 31) % 251 for rank in range(SIZE)])
    rows = rows.to(torch.uint8)
    mine = rows[RANK].to(GPU)
    expect(ddl.allgather(mine), rows, f"allgather of {count} bytes")
    room = torch.zeros_like(rows, device=GPU)
    room[RANK] = mine
    ddl.allgather(room[RANK], out=room)
    expect(room, rows, f"allgather of {count} bytes, in place")
    for root in range(SIZE):
        expect(ddl.broadcast(mine.clone(), root), rows[root], f"broadcast of {count} from {root}")


def check_many() -> None:
    """Several at once, of two types; asynchronous ones, and blocking ones behind them."""
    arrays = [numbers(RANK, n, t).to(GPU) for t in (torch.float32, torch.float64) for n in (5, 70)]
    for got, x in zip(ddl.allreduce_n(arrays, average=False), arrays, strict=True):
        expect(got, every(x.numel(), x.dtype).sum(0, dtype=x.dtype), "allreduce_n")
    handles = [ddl.allreduce_async(numbers(RANK, n, torch.float32).to(GPU)) for n in COUNTS]
    total = ddl.allreduce(numbers(RANK, 9, torch.int64).to(GPU))
    expect(total, every(9, torch.int64).sum(0), "a blocking call behind asynchronous ones")
    for n, handle in zip(COUNTS, handles, strict=True):
        expect(handle.wait(), every(n, torch.float32).sum(0), f"allreduce_async of {n}")


def check_host_memory_as_before() -> None:
    x = numbers(RANK, 1001, torch.float32)
    assert torch.equal(ddl.allreduce(x), every(1001, torch.float32).sum(0))


for kind in FLOATS + INTEGERS:
    for number in COUNTS:
        check_allreduce(kind, number)
        check_reduce(kind, number)
        check_reduce_scatter(kind, number)
        if kind in FLOATS:
            check_average(kind, number)
for number in COUNTS:
    check_movement(number)
check_many()
check_host_memory_as_before()
ddl.finalize()
