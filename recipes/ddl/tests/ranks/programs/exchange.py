"""The C functions for direct messages as C calls them: gather, scatter, alltoall(v), send, recv."""

from __future__ import annotations

import ctypes
from pathlib import Path

import ddl
import numpy as np

ddl.init()
RANK, SIZE = ddl.rank(), ddl.size()
MAPS = Path("/proc/self/maps").read_text().splitlines()
LIB = ctypes.CDLL(next(line.split()[-1] for line in MAPS if "/libddl.so" in line))
LIB.ddl_last_error.restype = ctypes.c_char_p
MISMATCH = 3
WORLD = None


def address(x: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(x.ctypes.data)


def check(code: int) -> None:
    assert code == 0, LIB.ddl_last_error().decode()


def block(source: int, dest: int, count: int) -> np.ndarray:
    return ((np.arange(count) + 10 * source + 3 * dest) % 251).astype(np.uint8)


for n in (0, 1, 1000, 300_000):
    size_t = ctypes.c_size_t(n)
    for root in range(SIZE):
        everything = np.zeros((SIZE, n), np.uint8)
        mine = block(RANK, root, n)
        check(LIB.ddl_comm_gather(WORLD, address(mine), address(everything), size_t, root))
        if root == RANK:
            np.testing.assert_array_equal(everything, [block(r, root, n) for r in range(SIZE)])
        parts = np.array([block(root, r, n) for r in range(SIZE)])
        got = np.zeros(n, np.uint8)
        check(LIB.ddl_comm_scatter(WORLD, address(parts), address(got), size_t, root))
        np.testing.assert_array_equal(got, block(root, RANK, n))

    outgoing = np.array([block(RANK, r, n) for r in range(SIZE)])
    incoming = np.zeros((SIZE, n), np.uint8)
    check(LIB.ddl_comm_alltoall(WORLD, address(outgoing), address(incoming), size_t))
    np.testing.assert_array_equal(incoming, [block(r, RANK, n) for r in range(SIZE)])

# From a to b go a + 2 b bytes.
send_bytes = np.array([RANK + 2 * r for r in range(SIZE)], np.uintp)
recv_bytes = np.array([r + 2 * RANK for r in range(SIZE)], np.uintp)
send_offsets, recv_offsets = (np.cumsum(b) - b for b in (send_bytes, recv_bytes))
outgoing = np.concatenate([block(RANK, r, int(send_bytes[r])) for r in range(SIZE)])
incoming = np.zeros(int(recv_bytes.sum()), np.uint8)
vectors = [address(v) for v in (send_bytes, send_offsets)]
room = [address(v) for v in (recv_bytes, recv_offsets)]
check(LIB.ddl_comm_alltoallv(WORLD, address(outgoing), *vectors, address(incoming), *room))
expected = np.concatenate([block(r, RANK, int(recv_bytes[r])) for r in range(SIZE)])
np.testing.assert_array_equal(incoming, expected)

# Round the ring, twice with other tags out of order.
after, before = (RANK + 1) % SIZE, (RANK - 1) % SIZE
for first, second in ((1, 2), (2, 1)):
    data = [block(RANK, tag, 5000) for tag in (0, 1, 2)]
    got = np.zeros(5000, np.uint8)
    if RANK % 2 == 0 and SIZE > 1:
        for tag in (1, 2):
            check(LIB.ddl_comm_send(WORLD, address(data[tag]), 5000, after, tag))
    for tag in (first, second) if SIZE > 1 and before % 2 == 0 else ():
        check(LIB.ddl_comm_recv(WORLD, address(got), 5000, before, tag))
        np.testing.assert_array_equal(got, block(before, tag, 5000))
    ddl.barrier()

# From any rank, with tags that MPI has room for and with the last ones; pieces keep their order.
LAST = 2**31 - 1
for tag in (3, 32768, LAST - 1, LAST):
    if RANK == 0:
        seen = []
        for _ in range(2 * (SIZE - 1)):
            got, source = np.zeros(3000, np.uint8), ctypes.c_int(-1)
            check(LIB.ddl_comm_recv_any(WORLD, address(got), 3000, tag, ctypes.byref(source)))
            np.testing.assert_array_equal(got, block(source.value, seen.count(source.value), 3000))
            seen.append(source.value)
        assert sorted(seen) == sorted([*range(1, SIZE)] * 2), seen
    else:
        for n in range(2):
            data = block(RANK, n, 3000)
            check(LIB.ddl_comm_send(WORLD, address(data), 3000, 0, tag))
    # One that another rank's message does not match.
    if RANK == 0 and SIZE > 1:
        for n, number in ((1, tag), (2, tag - 3)):
            data = block(0, n, 10)
            check(LIB.ddl_comm_send(WORLD, address(data), 10, 1, number))
    if RANK == 1:
        got = np.zeros(10, np.uint8)
        for n, wanted in ((2, tag - 3), (1, tag)):
            check(LIB.ddl_comm_recv(WORLD, address(got), 10, 0, wanted))
            np.testing.assert_array_equal(got, block(0, n, 10))
assert LIB.ddl_comm_recv_any(WORLD, None, 0, -1, None) == 2
assert b"the tag is -1" in LIB.ddl_last_error()

if SIZE > 1:
    # A receive must ask for what was sent.
    tiny = np.zeros(4, np.uint8)
    for asked in (2, 8):
        if RANK == 0:
            check(LIB.ddl_comm_send(WORLD, address(tiny), 4, 1, 5))
        if RANK == 1:
            code = LIB.ddl_comm_recv(WORLD, address(np.zeros(asked, np.uint8)), asked, 0, 5)
            assert code == MISMATCH, code
            assert b"rank 0" in LIB.ddl_last_error()
ddl.barrier()
