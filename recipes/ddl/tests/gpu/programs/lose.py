"""The last rank stops between two collectives; the others must say so, not hang."""

from __future__ import annotations

import os
import signal
import time

import ddl
import torch
from device import GPU, RANK, SIZE, expect

x = torch.ones(1 << 20, device=GPU)
expect(ddl.allreduce(x), torch.full((1 << 20,), float(SIZE)), "before")
if RANK == SIZE - 1:
    os.kill(os.getpid(), signal.SIGSTOP)
start = time.monotonic()
try:
    ddl.allreduce(x)
    raise AssertionError("there was nobody to finish with")
except ddl.DDLError as error:
    print(f"rank {RANK} after {time.monotonic() - start:.1f} s: {error}", flush=True)
x += 1  # the GPU is not stuck
torch.cuda.synchronize()
os._exit(7)  # an exception would end the job before the others have told their error
