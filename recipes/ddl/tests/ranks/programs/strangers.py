"""Sends nonsense to the ports where ranks ask each other; then all wait for one that is late."""

from __future__ import annotations

import random
import socket
import time
from pathlib import Path

import ddl
import numpy as np

ddl.init()
RANK, SIZE = ddl.rank(), ddl.size()
LATE = 2.0  # more than half of the timeout


def own_port() -> int:
    """The UDP port that this process has open."""
    links = [str(fd.readlink()) for fd in Path("/proc/self/fd").iterdir() if fd.is_symlink()]
    own = {int(link[8:-1]) for link in links if link.startswith("socket:[")}
    lines = Path("/proc/self/net/udp").read_text().splitlines()[1:]
    (port,) = [int(line.split()[1][-4:], 16) for line in lines if int(line.split()[9]) in own]
    return port


ports = ddl.allgather(np.array([own_port()], dtype=np.int64)).ravel()
if RANK == 0:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        for size in (0, 1, 27, 28, 29, 32, 64, 1052, 2000):
            for port in ports:
                stranger.sendto(random.Random(size).randbytes(size), ("127.0.0.1", int(port)))
                stranger.sendto(bytes(size), ("127.0.0.1", int(port)))
ddl.barrier()
if RANK == SIZE - 1:
    time.sleep(LATE)
for _ in range(3):
    total = ddl.allreduce(np.full(100_000, RANK, dtype=np.float32))
    assert (total == sum(range(SIZE))).all()
ddl.finalize()
