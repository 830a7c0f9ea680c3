"""broadcast, allgather, barrier, groups and allreduce_n: every byte where it belongs."""

from __future__ import annotations

import os
import time
from functools import partial

import ddl
import numpy as np
from helpers import in_threads

ddl.init()
RANK, SIZE = ddl.rank(), ddl.size()
CHUNK = int(os.environ.get("DDL_SHM_CHUNK", 64 << 10))
COUNTS = (0, 1, 7, CHUNK - 1, CHUNK, CHUNK + 1, 6 * CHUNK + 13, 70 * CHUNK + 1)


def pattern(rank: int, count: int) -> np.ndarray:
    return ((np.arange(count) * 7 + rank * 31) % 251).astype(np.uint8)


def check_broadcast(group: ddl.Group | None, rank: int, size: int) -> None:
    for count in COUNTS:
        for root in range(size):
            x = pattern(rank, count)
            assert ddl.broadcast(x, root, group) is x
            np.testing.assert_array_equal(x, pattern(root, count), f"root {root}, {count} bytes")


def check_allgather(group: ddl.Group | None, rank: int, size: int) -> None:
    for count in COUNTS:
        expected = np.stack([pattern(other, count) for other in range(size)])
        np.testing.assert_array_equal(ddl.allgather(pattern(rank, count), group=group), expected)
        room = np.zeros((size, count), np.uint8)
        room[rank] = pattern(rank, count)
        ddl.allgather(room[rank], out=room, group=group)  # in place
        np.testing.assert_array_equal(room, expected)


def check_barrier() -> None:
    """Nobody leaves before the last has come."""
    for late in range(SIZE):
        if late == RANK:
            time.sleep(0.05)
        came = np.array([time.monotonic()])
        ddl.barrier()
        left = np.array([time.monotonic()])
        assert ddl.allreduce(left, "min")[0] >= ddl.allreduce(came, "max")[0]


def check_group(members: list[int]) -> None:
    group = ddl.new_group(members)
    if RANK not in members:
        assert group is None
        return
    assert group is not None
    assert (group.rank, group.size) == (members.index(RANK), len(members))
    check_broadcast(group, group.rank, group.size)
    check_allgather(group, group.rank, group.size)
    for count in (1, 3 * CHUNK):
        expected = np.full(count, sum(members), np.int64)
        np.testing.assert_array_equal(
            ddl.allreduce(np.full(count, RANK, np.int64), group=group), expected
        )
    rows = np.arange(2 * group.size)
    np.testing.assert_array_equal(
        ddl.reduce_scatter(rows, group=group),
        rows[2 * group.rank : 2 * group.rank + 2] * group.size,
    )
    group.free()


def check_threads() -> None:
    """Two groups at work at once, each in a thread of its own."""
    groups = [ddl.new_group(list(range(SIZE)), tag) for tag in range(2)]

    def work(group: ddl.Group, factor: int) -> None:
        for i in range(50):
            x = np.full(1000 + i, factor * (RANK + 1), np.int64)
            total = factor * SIZE * (SIZE + 1) // 2
            assert (ddl.allreduce(x, group=group) == total).all()

    in_threads([partial(work, group, 10**i) for i, group in enumerate(groups)])


def check_allreduce_n() -> None:
    shapes = [(3, 4), (), (0,), (5,)]
    arrays = [np.full(shape, RANK + 1.0, dtype) for shape in shapes for dtype in ("f4", "f8")]
    for average in (False, True):
        expected = (SIZE + 1) / 2 * (1 if average else SIZE)
        for x, y in zip(arrays, ddl.allreduce_n(arrays, average), strict=True):
            assert (x.shape, x.dtype) == (y.shape, y.dtype)
            assert (y == expected).all()
    assert ddl.allreduce_n([]) == []


check_broadcast(None, RANK, SIZE)
check_allgather(None, RANK, SIZE)
check_barrier()
for chosen in ([0], list(range(SIZE))[::-1], list(range(0, SIZE, 2)), list(range(SIZE))[-2:]):
    check_group(chosen)
check_threads()
check_allreduce_n()
