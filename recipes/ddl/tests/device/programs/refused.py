"""What must be an error on GPUs, and leaves the communicator usable."""

from __future__ import annotations

import ctypes

import numpy as np
from cuda import GPUS, RANK, SIZE, SUM, call, cuda, expect, n, on_gpu, refusal

ARGUMENT, MISMATCH = 2, 3

x = np.ones(100, np.float32)
host = ctypes.c_void_p(x.ctypes.data)
gpu = on_gpu(x)


def allreduce(send: object, recv: object) -> None:
    call("allreduce", send, recv, n(100), 0, SUM)


# One call with both kinds of memory.
for send, recv, words in (
    (host, gpu, "recv is on a GPU and send in host memory"),
    (gpu, host, "send is on a GPU and recv in host memory"),
):
    error = refusal(lambda send=send, recv=recv: allreduce(send, recv))
    assert error.code == ARGUMENT, error
    assert words in str(error), error

# One rank in host memory, the others on GPUs.
if SIZE > 1:
    mine = host if RANK == 0 else gpu
    error = refusal(lambda: allreduce(mine, mine))
    assert error.code == MISMATCH, error
    assert "allreduce(100 x float32, sum, on a GPU)" in str(error), error

same = on_gpu(x)
allreduce(same, same)
expect(same, x * SIZE, "afterwards")

if GPUS > SIZE:  # there is a GPU that no rank uses
    cuda("SetDevice", GPUS - 1)
    other = on_gpu(x)
    error = refusal(lambda: allreduce(other, other))
    assert error.code == ARGUMENT, error
    assert f"is on GPU {GPUS - 1}" in str(error), error
    del other
    cuda("SetDevice", RANK % GPUS)
