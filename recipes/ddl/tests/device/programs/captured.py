"""Collectives while the stream is captured into a CUDA graph: refused, and nothing is spoilt.

The graph has what the program gave it, and the communicator is as before.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np
from cuda import CUDART, RANK, SIZE, SUM, call, cuda, expect, from_gpu, n, on_gpu, refusal, stream

ARGUMENT = 2
GLOBAL = 0
COUNT = 1000

ones = np.ones(COUNT, np.float32)
x, y = on_gpu(ones), on_gpu(0 * ones)
blocks = on_gpu(np.ones(SIZE * COUNT, np.float32))
request = ctypes.c_void_p()


def allreduce() -> None:
    call("allreduce", x, x, n(COUNT), 0, SUM)


REFUSED: dict[str, Callable[[], None]] = {
    "allreduce": allreduce,
    "iallreduce": lambda: call("iallreduce", x, x, n(COUNT), 0, SUM, ctypes.byref(request)),
    "broadcast": lambda: call("broadcast", x, n(x.nbytes), 0),
    "allgather": lambda: call("allgather", x, blocks, n(x.nbytes)),
    "send": lambda: call("send", x, n(x.nbytes), (RANK + 1) % SIZE, 0),
    "recv": lambda: call("recv", x, n(x.nbytes), (RANK - 1) % SIZE, 0),
}


def check_in(handle: ctypes.c_void_p) -> None:
    graph, executable = ctypes.c_void_p(), ctypes.c_void_p()
    cuda("StreamBeginCapture", handle, GLOBAL)
    cuda("MemcpyAsync", y, x, n(x.nbytes), 3, handle)
    for name, body in REFUSED.items():
        error = refusal(body)
        assert error.code == ARGUMENT, (name, error)
        assert str(error).startswith(f"{name}: the stream is being captured"), error
    cuda("StreamEndCapture", handle, ctypes.byref(graph))
    assert (from_gpu(y, ones.dtype, COUNT) == 0).all()  # nothing ran at the capture
    allreduce()
    expect(x, ones * SIZE, "after the capture")
    cuda("GraphInstantiate", ctypes.byref(executable), graph, ctypes.c_ulonglong(0))
    cuda("GraphLaunch", executable, handle)
    cuda("StreamSynchronize", handle)
    expect(y, ones * SIZE, "after the launch")
    cuda("GraphExecDestroy", executable)
    cuda("GraphDestroy", graph)


allreduce()
expect(x, ones * SIZE, "before")
x = on_gpu(ones)
with stream() as other:
    check_in(other)
assert CUDART.cudaGetLastError() == 0
