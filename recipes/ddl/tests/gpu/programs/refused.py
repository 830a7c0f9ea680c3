"""What must be an error on GPUs, and leave the communicator usable."""

from __future__ import annotations

import ctypes

import ddl
import torch
from device import GPU, RANK, SIZE, expect

# One rank in host memory, the others on GPUs.
x = torch.ones(100)
try:
    ddl.allreduce(x if RANK == 0 else x.to(GPU))
    raise AssertionError("ranks in different memory must not agree")
except ddl.DDLError as error:
    assert error.code == ddl.errors.Result.MISMATCH, error
    assert "allreduce(100 x float32, sum)" in str(error), error
    assert "allreduce(100 x float32, sum, on a GPU)" in str(error), error

# One call with both.
for send, recv in ((x, x.to(GPU)), (x.to(GPU), x)):
    try:
        ddl.allreduce(send, out=recv)
        raise AssertionError("send and recv in different memory must be refused")
    except ddl.DDLValueError as error:
        assert "send is on a GPU" in str(error) or "recv is on a GPU" in str(error), error

expect(ddl.allreduce(x.to(GPU)), torch.full((100,), float(SIZE)), "afterwards")

if torch.cuda.device_count() > SIZE:  # there is a GPU that no rank uses
    spare = torch.device("cuda", torch.cuda.device_count() - 1)
    try:
        ddl.allreduce(x.to(spare))
        raise AssertionError("a second GPU must be refused")
    except ddl.DDLValueError as error:
        assert f"is on GPU {spare.index}" in str(error), error

# A stream that is none is not looked at before it is used; the default one always works.
library = ctypes.CDLL("libddl.so.1")
assert library.ddl_set_stream(None) == 0
ddl.finalize()
