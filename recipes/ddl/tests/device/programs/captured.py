"""Collectives while the stream is captured into a CUDA graph.

NCCL's on one host become part of the graph. All others are refused, and nothing is spoilt: the
graph has what the program gave it, and the communicator is as before.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Callable, Iterator

import ddl
import numpy as np
from cuda import (
    AVERAGE,
    CUDART,
    RANK,
    SIZE,
    SUM,
    Memory,
    call,
    cuda,
    expect,
    from_gpu,
    n,
    on_gpu,
    refusal,
    stream,
)

ARGUMENT, MISMATCH = 2, 3
GLOBAL = 0
COUNT = 1000
FLOAT = 0

ones = np.ones(COUNT, np.float32)
x, y = on_gpu(ones), on_gpu(0 * ones)
blocks, others = (
    on_gpu(np.ones(SIZE * COUNT, np.float32)),
    on_gpu(np.ones(SIZE * COUNT, np.float32)),
)
request = ctypes.c_void_p()


def allreduce() -> None:
    call("allreduce", x, x, n(COUNT), FLOAT, SUM)


MESSAGES: dict[str, Callable[[], None]] = {
    "iallreduce": lambda: call("iallreduce", x, x, n(COUNT), FLOAT, SUM, ctypes.byref(request)),
    "alltoall": lambda: call("alltoall", blocks, others, n(x.nbytes)),
    "send": lambda: call("send", x, n(x.nbytes), (RANK + 1) % SIZE, 0),
    "recv": lambda: call("recv", x, n(x.nbytes), (RANK - 1) % SIZE, 0),
}
COLLECTIVES: dict[str, Callable[[], None]] = {
    "allreduce": allreduce,
    "broadcast": lambda: call("broadcast", x, n(x.nbytes), 0),
    "allgather": lambda: call("allgather", x, blocks, n(x.nbytes)),
}


class Graph:
    """What `captured` has captured."""

    def __init__(self) -> None:
        self._as_parameter_ = ctypes.c_void_p()

    def launch(self, handle: ctypes.c_void_p) -> None:
        cuda("GraphLaunch", self, handle)

    def destroy(self) -> None:
        cuda("GraphExecDestroy", self)


@contextlib.contextmanager
def captured(handle: ctypes.c_void_p) -> Iterator[Graph]:
    """Captures what the stream is given in the block."""
    graph, made = ctypes.c_void_p(), Graph()
    cuda("StreamBeginCapture", handle, GLOBAL)
    yield made
    cuda("StreamEndCapture", handle, ctypes.byref(graph))
    cuda("GraphInstantiate", ctypes.byref(made._as_parameter_), graph, ctypes.c_ulonglong(0))
    cuda("GraphDestroy", graph)


def check_refused(bodies: dict[str, Callable[[], None]], why: str) -> None:
    for name, body in bodies.items():
        error = refusal(body)
        assert error.code == ARGUMENT, (name, error)
        assert str(error).startswith(f"{name}: the stream is being captured"), error
        assert why in str(error), error


def check_refusals(handle: ctypes.c_void_p, is_nccl: bool) -> None:
    with captured(handle) as graph:
        cuda("MemcpyAsync", y, x, n(x.nbytes), 3, handle)
        check_refused(MESSAGES, "cannot be part of")
        if not is_nccl:
            check_refused(COLLECTIVES, "goes through host memory")
    assert (from_gpu(y, ones.dtype, COUNT) == 0).all()  # nothing ran at the capture
    allreduce()
    expect(x, ones * SIZE, "after the capture")
    graph.launch(handle)
    cuda("StreamSynchronize", handle)
    expect(y, ones * SIZE, "after the launch")
    graph.destroy()


def check_replays(handle: ctypes.c_void_p) -> None:
    """Each launch reduces what the memory has then, and is in order with calls of its stream."""
    mean, total = Memory(x.nbytes), Memory(x.nbytes)
    pieces, gathered = Memory(x.nbytes), Memory(SIZE * x.nbytes)
    with captured(handle) as graph:
        cuda("MemcpyAsync", total, x, n(x.nbytes), 3, handle)
        call("allreduce", total, total, n(COUNT), FLOAT, SUM)
        call("allreduce", x, mean, n(COUNT), FLOAT, AVERAGE)
        call("reduce_scatter", blocks, pieces, n(COUNT), FLOAT, SUM)
        call("allgather", x, gathered, n(x.nbytes))
        call("broadcast", x, n(x.nbytes), SIZE - 1)
    for turn in (1, 2, 3):
        given = [np.full(COUNT, turn * (rank + 1), np.float32) for rank in range(SIZE)]
        every = np.concatenate([turn * (block + 1) * ones for block in range(SIZE)])
        for memory, values in ((x, given[RANK]), (blocks, every)):
            cuda("Memcpy", memory, ctypes.c_void_p(values.ctypes.data), n(values.nbytes), 1)
        graph.launch(handle)
        if turn == 2:  # a call of the same stream comes after the launch, and checks as ever
            call("allreduce", total, total, n(COUNT), FLOAT, SUM)
            expect(total, sum(given) * SIZE, "a call after the launch")
        else:
            cuda("StreamSynchronize", handle)
            expect(total, sum(given), f"sum {turn}")
        expect(mean, sum(given) / np.float32(SIZE), f"mean {turn}")
        expect(pieces, turn * (RANK + 1) * SIZE * ones, f"pieces {turn}")
        expect(gathered, np.concatenate(given), f"gathered {turn}")
        expect(x, given[SIZE - 1], f"broadcast {turn}")
    if SIZE > 1:
        check_disagreement(handle)
    KEPT.append(graph)  # libddl ends beside a graph that is never destroyed


KEPT: list[Graph] = []


def check_disagreement(handle: ctypes.c_void_p) -> None:
    """A rank that captures and one that does not: both know, and nothing is spoilt."""
    if RANK == 0:
        with captured(handle) as graph:
            error = refusal(allreduce)
        graph.destroy()
    else:
        error = refusal(allreduce)
    assert error.code == MISMATCH, error
    assert "on a GPU, for a CUDA graph)" in str(error), error
    allreduce()


with stream() as other:
    with captured(other) as empty:
        check_refused({"allreduce": allreduce}, "first collective on a GPU must come before")
    empty.destroy()
    allreduce()
    expect(x, ones * SIZE, "before")
    x = on_gpu(ones)
    check_refusals(other, is_nccl=sys.argv[1:] == ["nccl"])
    if sys.argv[1:] == ["nccl"]:
        x = on_gpu(ones)
        check_replays(other)
assert CUDART.cudaGetLastError() == 0
ddl.finalize()
