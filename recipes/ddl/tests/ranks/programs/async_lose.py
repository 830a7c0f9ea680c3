"""The last rank is killed while all have operations under way; the others print their errors.

Argument: "own", when the last rank has started its operations too, else "none".
"""

from __future__ import annotations

import os
import signal
import sys

import ddl
import numpy as np

ddl.init()
RANK, SIZE = ddl.rank(), ddl.size()
assert (ddl.allreduce_async(np.ones(3)).wait() == SIZE).all()
ddl.barrier()

sizes = [10, 20, 50_000, 10, 20, 30] * 5
if RANK < SIZE - 1 or "own" in sys.argv:
    handles = [ddl.allreduce_async(np.ones(n, np.float32)) for n in sizes]
if RANK == SIZE - 1:
    os.kill(os.getpid(), signal.SIGKILL)

# Whatever was complete before the rank died is right; from the first error on, all fail.
errors = []
for handle, n in zip(handles, sizes, strict=True):
    try:
        result = handle.wait()
    except ddl.DDLError as error:
        errors.append(error)
    else:
        assert not errors
        assert (result == SIZE).all()
        assert len(result) == n
try:
    ddl.barrier()
except ddl.DDLError as error:
    errors.append(error)
assert errors
cause = min((str(error) for error in errors), key=len)
assert all(cause in str(error) and error.code is errors[0].code for error in errors), errors
print(f"rank {RANK}: {errors[-1].code.name}: {cause}", flush=True)
# Raising would end the whole job, and perhaps before the other ranks have told their error.
os._exit(7)
