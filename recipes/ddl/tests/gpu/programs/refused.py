"""What must be an error on GPUs, and leave the communicator usable."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import ddl
import torch
from device import GPU, RANK, SIZE, expect


def error_of(body: Callable[[], object]) -> tuple[ddl.errors.Result, str]:
    try:
        body()
    except ddl.DDLError as error:
        return error.code, str(error)
    raise AssertionError("was not refused")


x = torch.ones(100)
on_gpu = x.to(GPU)

# One rank in host memory, the others on GPUs.
code, text = error_of(lambda: ddl.allreduce(x if RANK == 0 else on_gpu))
assert code == ddl.errors.Result.MISMATCH, text
assert "allreduce(100 x float32, sum)" in text, text
assert "allreduce(100 x float32, sum, on a GPU)" in text, text

# One call with both.
code, text = error_of(lambda: ddl.allreduce(x, out=on_gpu))
assert code == ddl.errors.Result.ARGUMENT, text
assert "recv is on a GPU and send in host memory" in text, text
code, text = error_of(lambda: ddl.allreduce(on_gpu, out=x))
assert code == ddl.errors.Result.ARGUMENT, text
assert "send is on a GPU and recv in host memory" in text, text

expect(ddl.allreduce(on_gpu), torch.full((100,), float(SIZE)), "afterwards")

if torch.cuda.device_count() > SIZE:  # there is a GPU that no rank uses
    spare = torch.device("cuda", torch.cuda.device_count() - 1)
    code, text = error_of(lambda: ddl.allreduce(x.to(spare)))
    assert code == ddl.errors.Result.ARGUMENT, text
    assert f"is on GPU {spare.index}" in text, text

assert ctypes.CDLL("libddl.so.1").ddl_set_stream(None) == 0
ddl.finalize()
