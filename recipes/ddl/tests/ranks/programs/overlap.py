"""Asynchronous collectives against exact results: in any order, mixed with blocking ones.

Every rank draws the same operations, and waits, drops and polls as it pleases.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Callable

import ddl
import numpy as np
from helpers import in_threads

ddl.init()
RANK, SIZE = ddl.rank(), ddl.size()
COUNTS = (0, 1, 3, 64, 1000, 1000, 5000, 20_000)
DTYPES = ("float16", "float32", "float64", "int32", "int64")
OPS = ("sum", "prod", "min", "max")

Check = Callable[[], None]


def numbers(rank: int, count: int, dtype: str, seed: int) -> np.ndarray:
    """Numbers whose sums and products are exact in every type."""
    return ((np.arange(count) + seed) % 3 + rank % 2 + 1).astype(dtype)


class Draw:
    """Starts operations drawn at random on one group, and knows what they must give."""

    def __init__(self, group: ddl.Group | None, seed: int) -> None:
        self.group = group
        self.rank = RANK if group is None else group.rank
        self.size = SIZE if group is None else group.size
        self.common = random.Random(seed)  # the same on all ranks
        self.own = random.Random(f"{seed} {RANK}")

    def start(self) -> tuple[ddl.Handle, Check]:
        """Start one operation; the check compares what it gave, once it is complete."""
        count = self.common.choice(COUNTS)
        dtype = self.common.choice(DTYPES[:2] if self.common.random() < 0.7 else DTYPES)
        op = "sum" if self.common.random() < 0.7 else self.common.choice(OPS)
        kind = self.common.choice(["allreduce"] * 6 + ["in place", "move", "scatter", "gather"])
        seed = self.common.randrange(3)
        root = self.common.randrange(self.size)
        every = np.stack([numbers(rank, count, dtype, seed) for rank in range(self.size)])
        mine = every[self.rank].copy()
        reduce = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}[op]
        total = reduce.reduce(every, 0).astype(dtype)
        expected, out, group = total, np.empty_like(mine), self.group
        match kind:
            case "allreduce":
                handle = ddl.allreduce_async(mine, op, out, group)
            case "in place":
                out = mine
                handle = ddl.allreduce_async_(mine, op, group)
            case "move":
                out, expected = mine, every[root]
                handle = ddl.broadcast_async(mine, root, group)
            case "scatter":
                rows = np.stack([mine] * self.size)
                out = np.empty((1, count), dtype)
                expected = total[None]
                handle = ddl.reduce_scatter_async(rows, op, out, group)
            case "gather":
                out, expected = np.empty_like(every), every
                handle = ddl.allgather_async(mine, out, group)

        def check() -> None:
            if not np.array_equal(out, expected):
                np.testing.assert_array_equal(out, expected, f"{kind} {dtype} {op}")

        return handle, check

    def run(self, number: int) -> None:
        waiting: list[tuple[ddl.Handle, Check]] = []
        dropped: list[Check] = []
        for _ in range(number):
            handle, check = self.start()
            if self.own.random() < 0.1:
                dropped.append(check)
                del handle
            else:
                waiting.append((handle, check))
            if self.common.random() < 0.05:  # waits its turn behind what is pending
                total = ddl.allreduce(np.full(5, self.rank + 1), group=self.group)
                assert (total == self.size * (self.size + 1) // 2).all()
                assert all(handle.done() for handle, _ in waiting)
            if waiting and self.own.random() < 0.2:
                handle, check = waiting.pop(self.own.randrange(len(waiting)))
                handle.wait()
                check()
        self.own.shuffle(waiting)
        for handle, check in waiting:
            if self.own.random() < 0.5:
                handle.wait(timeout=1000)
            assert handle.wait() is handle.wait()
            assert handle.done()
            check()
        last = ddl.barrier_async(self.group)
        assert last.wait() is None
        for check in dropped:
            check()


def check_groups() -> None:
    """Several groups at once, started in turn by one thread, then each by a thread of its own."""
    members = [list(range(SIZE)), list(range(SIZE))[::-1], list(range(SIZE))[-2:]]
    groups = [ddl.new_group(ranks, tag) for tag, ranks in enumerate(members)]
    mine = [group for group in groups if group is not None]
    draws = [Draw(group, seed) for seed, group in enumerate(mine)]
    # Ranks outside the last group have fewer.
    pending = [draw.start() for _ in range(20) for draw in draws]
    for handle, check in reversed(pending):
        handle.wait()
        check()
    in_threads([lambda draw=draw: draw.run(40) for draw in draws])
    left = [ddl.allreduce_async(np.full(3, group.rank), group=group) for group in mine]
    for group in mine:
        group.free()  # waits for what is pending
    for handle, group in zip(left, mine, strict=True):
        assert handle.done()
        assert (handle.wait() == group.size * (group.size - 1) // 2).all()


def check_waiters() -> None:
    """One handle, several threads that wait for it."""
    handle = ddl.allreduce_async(np.full(10, RANK))

    def work() -> None:
        assert (handle.wait() == SIZE * (SIZE - 1) // 2).all()

    in_threads([work] * 4)


def check_dropped() -> None:
    """The arrays of handles that nobody keeps stay alive until the operation is complete."""
    for _ in range(20):
        ddl.allreduce_async(np.ones(1000))
        ddl.broadcast_async(np.ones(1000))
    gc.collect()
    assert (ddl.allreduce_async(np.ones(1000)).wait() == SIZE).all()


def check_rounding() -> None:
    """The same bits, fused or not and blocking or not."""
    for dtype in ("float16", "float32", "float64"):
        random_numbers = np.random.default_rng(RANK)
        arrays = [random_numbers.normal(size=n).astype(dtype) for n in (3, 70, 1, 640, 129) * 6]
        for op in ("sum", "average"):
            handles = [ddl.allreduce_async(x, op) for x in arrays]
            for handle, x in zip(handles, arrays, strict=True):
                assert np.array_equal(handle.wait(), ddl.allreduce(x, op)), (dtype, op)


def check_chain() -> None:
    """Each reads what the one before it writes: as if they ran one after the other."""
    x = np.ones(4)
    handles = [ddl.allreduce_async_(x) for _ in range(5)]
    y = np.zeros(4)
    handles.append(ddl.allreduce_async(x, "max", out=y))
    for handle in handles:
        handle.wait()
    assert (x == float(SIZE) ** 5).all()
    assert (y == x).all()


check_chain()
Draw(None, 7).run(150)
check_rounding()
check_waiters()
check_dropped()
check_groups()
