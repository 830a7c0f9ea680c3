"""Arguments that C programs get wrong: an error code and a sentence, never a crash."""

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
ARGUMENT = 2
WORLD = None
FLOAT, SUM = 0, 0
HUGE = ctypes.c_size_t(2**64 - 1)


def address(x: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(x.ctypes.data)


def sizes(*values: int) -> np.ndarray:
    return np.array([*values, *[0] * SIZE][:SIZE], np.uintp)


def refused(words: str, function: str, *arguments: object) -> None:
    code = getattr(LIB, function)(*arguments)
    sentence = LIB.ddl_last_error().decode()
    assert code == ARGUMENT, (function, code, sentence)
    assert words in sentence, sentence


X, ROOM = np.zeros(64, np.uint8), np.zeros(64, np.uint8)
NONE, ONE, MANY = sizes(), sizes(8), sizes(2**64 - 8)
COMM = ctypes.c_void_p()


def alltoallv(words: str, send: object, recv: object, *lists: np.ndarray) -> None:
    send_bytes, send_offsets, recv_bytes, recv_offsets = (address(values) for values in lists)
    refused(
        words,
        "ddl_comm_alltoallv",
        *(WORLD, send, send_bytes, send_offsets, recv, recv_bytes, recv_offsets),
    )


alltoallv("alltoallv: send is null", None, address(ROOM), ONE, NONE, ONE, NONE)
alltoallv("alltoallv: recv is null", address(X), None, ONE, NONE, ONE, NONE)
alltoallv("more than memory can hold", address(X), address(ROOM), MANY, sizes(16), ONE, NONE)
alltoallv("more than memory can hold", address(X), address(ROOM), ONE, NONE, ONE, MANY)
alltoallv("send and recv overlap", address(X), address(X), ONE, NONE, ONE, NONE)
refused("null", "ddl_comm_alltoallv", WORLD, address(X), None, None, address(X), None, None)

ranks = (ctypes.c_int * SIZE)(*range(SIZE))
refused("more than the", "ddl_comm_create", ranks, 2**31 - 1, 0, ctypes.byref(COMM))
refused("more than the", "ddl_comm_create", ranks, SIZE + 1, 0, ctypes.byref(COMM))
refused("at least one rank", "ddl_comm_create", ranks, -1, 0, ctypes.byref(COMM))
refused("at least one rank", "ddl_comm_create", None, SIZE, 0, ctypes.byref(COMM))
refused("result pointer", "ddl_comm_create", ranks, SIZE, 0, None)

refused("null", "ddl_comm_allreduce", WORLD, None, None, ctypes.c_size_t(1), FLOAT, SUM)
refused("memory can hold", "ddl_comm_allreduce", WORLD, address(X), address(X), HUGE, FLOAT, SUM)
refused("unknown", "ddl_comm_allreduce", WORLD, address(X), address(X), ctypes.c_size_t(1), 99, SUM)
refused("unknown", "ddl_comm_allreduce", WORLD, address(X), address(X), ctypes.c_size_t(1), 0, -1)
if SIZE > 1:
    for function in ("ddl_comm_allgather", "ddl_comm_alltoall"):
        refused("memory can hold", function, WORLD, address(X), address(ROOM), HUGE)
for function in ("ddl_comm_rank", "ddl_comm_size"):
    refused("null", function, WORLD, None)
    refused("not a communicator", function, address(X), ctypes.byref(ctypes.c_int()))
for function in ("ddl_rank", "ddl_size", "ddl_local_rank", "ddl_num_hosts", "ddl_get_timeout"):
    refused("null", function, None)
refused("not a communicator", "ddl_comm_free", WORLD)
refused("not a communicator", "ddl_comm_barrier", address(X))
refused("null", "ddl_malloc", None, ctypes.c_size_t(64), ctypes.c_size_t(64))
refused("power of two", "ddl_malloc", ctypes.byref(COMM), ctypes.c_size_t(3), ctypes.c_size_t(64))
for function in ("ddl_comm_send", "ddl_comm_recv"):
    refused("null", function, WORLD, None, ctypes.c_size_t(1), 0, 0)
    refused(f"from 0 to {SIZE - 1}", function, WORLD, address(X), ctypes.c_size_t(1), SIZE, 0)

# Nothing of it did any harm.
total = np.full(3, float(RANK + 1), np.float32)
assert LIB.ddl_comm_allreduce(WORLD, address(total), address(total), ctypes.c_size_t(3), 0, 0) == 0
assert total.tolist() == [SIZE * (SIZE + 1) / 2] * 3
ddl.barrier()
