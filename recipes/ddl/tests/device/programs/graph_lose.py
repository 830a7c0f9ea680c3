"""A rank is stopped where others launch a CUDA graph with a collective: they say so, and go on."""

from __future__ import annotations

import ctypes
import os
import signal
import time

import numpy as np
from cuda import RANK, SIZE, SUM, call, cuda, expect, n, on_gpu, refusal, stream

x = np.ones(1000, np.float32)
gpu = on_gpu(x)


def allreduce() -> None:
    call("allreduce", gpu, gpu, n(x.size), 0, SUM)


allreduce()
with stream() as handle:
    graph, executable = ctypes.c_void_p(), ctypes.c_void_p()
    cuda("StreamBeginCapture", handle, 0)
    allreduce()
    cuda("StreamEndCapture", handle, ctypes.byref(graph))
    cuda("GraphInstantiate", ctypes.byref(executable), graph, ctypes.c_ulonglong(0))
    if RANK == SIZE - 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    cuda("GraphLaunch", executable, handle)
    start = time.monotonic()
    error = refusal(allreduce)
    print(f"rank {RANK} after {time.monotonic() - start:.1f} s: {error.code} {error}", flush=True)
    cuda("StreamSynchronize", handle)  # this GPU is not stuck
    cuda("Memset", gpu, 0, n(x.nbytes))
    expect(gpu, x * 0, "afterwards")
time.sleep(3)
os._exit(7)
