"""Calls of the library in which something fails on one rank: a new communicator for each.

The library of faults.cc is preloaded. Arguments: the seed, and the number of failures.

After each, all ranks have the right result and can go on, or all learn of the failing rank by its
name, and no later call on the communicator succeeds. Nobody waits for the timeout.
"""

from __future__ import annotations

import ctypes
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

import ddl
import numpy as np

LIMIT = 60.0
ddl.init(f"-timeout {LIMIT}")
RANK, SIZE = ddl.rank(), ddl.size()
MAPS = Path("/proc/self/maps").read_text().splitlines()
LIB = ctypes.CDLL(next(line.split()[-1] for line in MAPS if "/libddl.so" in line))
LIB.ddl_last_error.restype = ctypes.c_char_p
FAULTS = ctypes.CDLL(None)
FLOAT, SUM = 0, 0
COUNTS = (3, 3000, 300_000)

Comm = ctypes.c_void_p
# What a call brings: its code and words, and its result with what it must be.
Told = tuple[int, str]
Operation = Callable[[Comm, int], Told]


def address(x: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(x.ctypes.data)


def told(code: int) -> Told:
    return code, LIB.ddl_last_error().decode() if code else ""


def verified(code: int, got: np.ndarray, expected: np.ndarray | float) -> Told:
    if code == 0:
        np.testing.assert_array_equal(got, expected)
    return told(code)


def allreduce(comm: Comm, count: int) -> Told:
    x = np.full(count, RANK + 1, np.float32)
    n = ctypes.c_size_t(count)
    code = LIB.ddl_comm_allreduce(comm, address(x), address(x), n, FLOAT, SUM)
    return verified(code, x, SIZE * (SIZE + 1) / 2)


def broadcast(comm: Comm, count: int) -> Told:
    x = np.full(count, RANK, np.uint8)
    code = LIB.ddl_comm_broadcast(comm, address(x), ctypes.c_size_t(count), SIZE - 1)
    return verified(code, x, SIZE - 1)


def allgather(comm: Comm, count: int) -> Told:
    x, got = np.full(count, RANK, np.uint8), np.zeros((SIZE, count), np.uint8)
    code = LIB.ddl_comm_allgather(comm, address(x), address(got), ctypes.c_size_t(count))
    return verified(code, got, np.arange(SIZE)[:, None] * np.ones(count))


def reduce_scatter(comm: Comm, count: int) -> Told:
    x, got = np.ones(SIZE * count, np.float32), np.zeros(count, np.float32)
    n = ctypes.c_size_t(count)
    return verified(
        LIB.ddl_comm_reduce_scatter(comm, address(x), address(got), n, FLOAT, SUM), got, SIZE
    )


def alltoallv(comm: Comm, count: int) -> Told:
    sizes = np.full(SIZE, count, np.uintp)
    offsets = np.cumsum(sizes) - sizes
    lists = address(sizes), address(offsets)
    x, got = np.full(SIZE * count, RANK, np.uint8), np.zeros((SIZE, count), np.uint8)
    code = LIB.ddl_comm_alltoallv(comm, address(x), *lists, address(got), *lists)
    return verified(code, got, np.arange(SIZE)[:, None] * np.ones(count))


def several_at_once(comm: Comm, count: int) -> Told:
    """Asynchronous ones, which may travel together. One that is refused is tried again."""
    arrays = [np.full(count, i, np.float32) for i in range(4)]
    requests = [ctypes.c_void_p() for _ in arrays]
    n = ctypes.c_size_t(count)
    for x, request in zip(arrays, requests, strict=True):
        for _ in range(2):
            if not LIB.ddl_comm_iallreduce(
                *(comm, address(x), address(x), n, FLOAT, SUM, ctypes.byref(request))
            ):
                break
            FAULTS.fault_disarm()
    ends = [told(LIB.ddl_wait(ctypes.byref(request))) for request in requests]
    for i, (end, x) in enumerate(zip(ends, arrays, strict=True)):
        verified(end[0], x, i * SIZE)
    return max(ends, key=lambda end: end[0])


OPERATIONS: list[Operation] = [
    *(allreduce, broadcast, allgather, reduce_scatter, alltoallv, several_at_once)
]


def make_group() -> Comm:
    comm = ctypes.c_void_p()
    ranks = (ctypes.c_int * SIZE)(*range(SIZE))
    code = LIB.ddl_comm_create(ranks, SIZE, 7, ctypes.byref(comm))
    assert code == 0, LIB.ddl_last_error().decode()
    return comm


def check_all(operation: Operation, count: int, victim: int, fault: tuple[int, int]) -> int:
    """The number of faults that came."""
    comm = make_group()
    where = f"{operation.__name__}({count}), fault {fault} on rank {victim}, on rank {RANK}"
    failed = 0
    start = time.monotonic()
    if victim == RANK:
        FAULTS.fault_arm(*fault)
    code, words = operation(comm, count)
    if victim == RANK:
        failed = FAULTS.fault_disarm()
    later, later_words = operation(comm, 3)
    assert time.monotonic() - start < LIMIT / 3, f"{where}: waited; {words}; {later_words}"
    ends = ddl.allgather(np.array([code, later, failed]))  # the job goes on
    if (ends[:, 0] == 0).all() and (ends[:, 1] == 0).all():
        pass
    else:
        assert ends[victim, 0] != 0, f"{where}: {ends}: {words}"
        assert (ends[:, 1] != 0).all(), f"{where}: went on: {ends}"
        assert "unusable" in later_words or f"rank {victim} (host" in later_words, (
            f"{where}: {later_words}"
        )
        if victim != RANK and code:
            assert f"rank {victim} (host" in words, f"{where}: {words}"
    LIB.ddl_comm_free(comm)
    return int(ends[victim, 2])


random.seed(int(sys.argv[1]))
seen = 0
most = {operation: 40 for operation in OPERATIONS}  # calls that can fail, about
for _ in range(int(sys.argv[2])):
    operation, victim = random.choice(OPERATIONS), random.randrange(SIZE)
    fault = random.randrange(most[operation]), random.randrange(2)
    if check_all(operation, random.choice(COUNTS), victim, fault):
        seen += 1
    else:
        most[operation] = max(6, fault[0])
assert seen > 0
print("ended well", seen, flush=True)
