"""Every collective on memory of GPUs, exact, against the same computed on the host."""

from __future__ import annotations

import ctypes

import numpy as np
from cuda import (
    AVERAGE,
    BFLOAT16,
    LIBDDL,
    MAX,
    MIN,
    PRODUCT,
    RANK,
    SIZE,
    SUM,
    TYPES,
    Memory,
    Values,
    call,
    expect,
    n,
    on_gpu,
    stream,
)

# Nothing, one, odd, what slices and chunks of 4 KiB are cut at, several chunks.
COUNTS = (0, 1, 63, 1024, 4097, 9001)
OPERATIONS = {SUM: np.add, PRODUCT: np.multiply, MIN: np.minimum, MAX: np.maximum}


def numbers(rank: int, count: int) -> Values:
    """Small whole numbers: their sums and products are exact in every type."""
    return (np.arange(count) % 3 + rank % 2 + 1).astype(np.float64)


def cast(values: Values, dtype: np.dtype[np.generic]) -> Values:
    if dtype is not BFLOAT16:
        return values.astype(dtype)
    upper = values.astype(np.float32).view(np.uint32) >> 16
    return upper.astype(np.uint16).view(BFLOAT16)


def reduced(op: int, count: int) -> Values:
    return OPERATIONS[op].reduce([numbers(rank, count) for rank in range(SIZE)])


def reductions(dtype: np.dtype[np.generic], count: int) -> None:
    number = TYPES[dtype]
    mine = on_gpu(cast(numbers(RANK, count), dtype))
    for op in OPERATIONS:
        what = f"{count} {dtype}, operation {op}"
        wanted = cast(reduced(op, count), dtype)
        room = Memory(mine.nbytes)
        call("allreduce", mine, room, n(count), number, op)
        expect(room, wanted, f"allreduce of {what}")
        expect(mine, cast(numbers(RANK, count), dtype), f"allreduce of {what}: the input")
        again = on_gpu(cast(numbers(RANK, count), dtype))
        call("allreduce", again, again, n(count), number, op)
        expect(again, wanted, f"allreduce of {what}, in place")
    for root in range(SIZE):
        room = Memory(mine.nbytes)
        call("reduce", mine, room, n(count), number, SUM, root)
        if root == RANK:
            expect(room, cast(reduced(SUM, count), dtype), f"reduce of {count} {dtype} to {root}")
    blocks = on_gpu(cast(np.concatenate([numbers(RANK, count) + b for b in range(SIZE)]), dtype))
    room = Memory(mine.nbytes)
    call("reduce_scatter", blocks, room, n(count), number, SUM)
    wanted = cast(reduced(SUM, count) + RANK * SIZE, dtype)
    expect(room, wanted, f"reduce_scatter of {count} {dtype}")


def averages(count: int) -> None:
    same = cast(np.arange(count) % 5 * 4.0, np.dtype(np.float32))
    room = on_gpu(same)
    call("allreduce", room, room, n(count), TYPES[same.dtype], AVERAGE)
    if SIZE in (1, 2, 4):  # exact
        expect(room, same, f"average of {count}")


def movement(count: int) -> None:
    rows = [((np.arange(count) * 7 + rank * 31) % 251).astype(np.uint8) for rank in range(SIZE)]
    room = Memory(count * SIZE)
    call("allgather", on_gpu(rows[RANK]), room, n(count))
    expect(room, np.concatenate(rows), f"allgather of {count} bytes")
    for root in range(SIZE):
        buffer = on_gpu(rows[RANK])
        call("broadcast", buffer, n(count), root)
        expect(buffer, rows[root], f"broadcast of {count} from {root}")
        room = Memory(count * SIZE)
        call("gather", on_gpu(rows[RANK]), room, n(count), root)
        if root == RANK:
            expect(room, np.concatenate(rows), f"gather of {count} to {root}")
        room = Memory(count)
        call("scatter", on_gpu(np.concatenate(rows)), room, n(count), root)
        expect(room, rows[RANK], f"scatter of {count} from {root}")
    room = Memory(count * SIZE)
    call("alltoall", on_gpu(np.concatenate(rows)), room, n(count))
    expect(room, np.concatenate([rows[RANK]] * SIZE), f"alltoall of {count}")


def points(count: int) -> None:
    """Send and receive, in both directions, between memories of both kinds."""
    if SIZE < 2 or RANK > 1:
        return
    values = (np.arange(count) * 3 % 251).astype(np.uint8)
    other = 1 - RANK
    if RANK == 0:
        call("send", on_gpu(values), n(count), other, 5)
        room = Memory(count)
        call("recv", room, n(count), other, 6)
        expect(room, values, f"send and recv of {count}")
    else:
        host = np.zeros(count, np.uint8)
        there = ctypes.c_void_p(host.ctypes.data)
        call("recv", there, n(count), other, 5)
        call("send", there, n(count), other, 6)
        assert host.tobytes() == values.tobytes(), f"recv of {count} in host memory"


def several_at_once() -> None:
    rooms = [on_gpu(cast(numbers(RANK, count), np.dtype(np.float32))) for count in COUNTS[1:]]
    requests = [ctypes.c_void_p() for _ in rooms]
    for room, request, count in zip(rooms, requests, COUNTS[1:], strict=True):
        call("iallreduce", room, room, n(count), 0, SUM, ctypes.byref(request))
    for room, request, count in zip(rooms, requests, COUNTS[1:], strict=True):
        assert LIBDDL.ddl_wait(ctypes.byref(request)) == 0, LIBDDL.ddl_last_error()
        expect(room, cast(reduced(SUM, count), np.dtype(np.float32)), f"iallreduce of {count}")


for kind in TYPES:
    for number in COUNTS:
        reductions(kind, number)
for number in COUNTS:
    averages(number)
    movement(number)
    if number:
        points(number)
several_at_once()
with stream():
    movement(1001)
