"""ddl_allreduce_mpi as programs call it that began MPI themselves. One argument: which.

again: their communicators outlive ddl_finalize and serve the library's next start.
beside messages: the library's own messages are not taken for the program's, whatever their tag.
freed late: a communicator is freed when the library has ended.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from pathlib import Path

import ddl
import numpy as np
from mpi4py import MPI

assert not ddl.initialized()  # loads the library
MAPS = Path("/proc/self/maps").read_text().splitlines()
LIB = ctypes.CDLL(next(line.split()[-1] for line in MAPS if "/libddl.so" in line))
LIB.ddl_last_error.restype = ctypes.c_char_p
RANK = MPI.COMM_WORLD.Get_rank()
SIZE = MPI.COMM_WORLD.Get_size()
HANDLE = ctypes.c_int if MPI._sizeof(MPI.Comm) == 4 else ctypes.c_void_p


def handle(of: MPI.Comm | MPI.Datatype | MPI.Op) -> ctypes.c_int | ctypes.c_void_p:
    return HANDLE(MPI._handleof(of))


def check_sum(comm: MPI.Comm) -> None:
    x = np.ones(1000, np.float32)
    code = LIB.ddl_allreduce_mpi(
        *(b"-timeout 20", ctypes.c_void_p(x.ctypes.data), ctypes.c_size_t(x.size)),
        *(handle(MPI.FLOAT), handle(MPI.SUM), handle(comm)),
    )
    assert code == 0, LIB.ddl_last_error().decode()
    assert (x == comm.Get_size()).all(), x


def serve_beside_messages(tag: int) -> None:
    """The last rank waits for a message from rank 0 while all make the library's new state."""
    got = np.zeros(4)
    failures: list[ddl.DDLError] = []

    def receive() -> None:
        try:
            ddl.recv(got, source=0, tag=tag)
        except ddl.DDLError as error:
            failures.append(error)

    receiver = threading.Thread(target=receive)
    if RANK == SIZE - 1:
        receiver.start()
        time.sleep(0.1)  # so that it waits
    comm = MPI.COMM_WORLD.Dup()
    check_sum(comm)
    if RANK == 0:
        ddl.send(np.full(4, 42.0), dest=SIZE - 1, tag=tag)
    if RANK == SIZE - 1:
        receiver.join()
        assert not failures, failures
        assert (got == 42).all(), got
    comm.Free()


match sys.argv[1]:
    case "again":
        half = MPI.COMM_WORLD.Split(RANK % 2, RANK)
        for _ in range(3):
            check_sum(half)
            check_sum(MPI.COMM_WORLD)
            ddl.finalize()
        half.Free()
    case "freed late":
        for _ in range(2):
            late = MPI.COMM_WORLD.Dup()
            check_sum(late)
            ddl.finalize()
            late.Free()
    case "beside messages":
        ddl.init("-timeout 20")
        # The monitored barrier's tags begin anywhere above those of groups.
        ranges = [range(4), range(16384, 16386), (2**31 - 1,)]
        for tag in (tag for some in ranges for tag in some):
            serve_beside_messages(tag)
        ddl.finalize()
print("ended well", flush=True)
