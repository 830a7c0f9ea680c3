"""A rank or its GPU is lost between two collectives: the others say so, and their GPUs go on."""

from __future__ import annotations

import os
import signal
import sys
import time

import numpy as np
from cuda import RANK, SIZE, SUM, call, cuda, expect, n, on_gpu, refusal

how = sys.argv[1]
x = np.ones(1 << 16, np.float32)
gpu = on_gpu(x)


def allreduce() -> None:
    call("allreduce", gpu, gpu, n(x.size), 0, SUM)


allreduce()
expect(gpu, x * SIZE, "before")
if how == "stop" and RANK == SIZE - 1:
    os.kill(os.getpid(), signal.SIGSTOP)
start = time.monotonic()
error = refusal(lambda: [allreduce() for _ in range(20)])
print(f"rank {RANK} after {time.monotonic() - start:.1f} s: {error.code} {error}", flush=True)
if how == "stop" or RANK < SIZE - 1:  # this GPU is not stuck
    cuda("Memset", gpu, 0, n(x.nbytes))
    expect(gpu, x * 0, "afterwards")
# The first rank that ends ends the job: the others shall have told their errors.
time.sleep(3)
os._exit(7)
