"""One rank dies, stops or leaves while the others are in a collective; they print their error.

Arguments: what the last rank does (kill, stop, exit, raise), the collective of the others, and
"impatient" for a rank 0 that waits for 1 s only.
"""

from __future__ import annotations

import os
import signal
import sys
import time

import ddl
import numpy as np

ddl.init()
RANK, SIZE = ddl.rank(), ddl.size()
how, collective = sys.argv[1:3]
if RANK == 0 and "impatient" in sys.argv:
    ddl.set_timeout(1)
ddl.barrier()

if RANK == SIZE - 1:
    print("pid", os.getpid(), flush=True)
    match how:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "exit":
            sys.exit(0)
        case "raise":
            raise ZeroDivisionError("the lost rank's own mistake")

start = time.monotonic()
try:
    match collective:
        case "allreduce":
            ddl.allreduce(np.ones(1 << 20))
        case "small":
            ddl.allreduce(np.ones(2))
        case "broadcast":
            ddl.broadcast(np.ones(1 << 20), root=SIZE - 1)
        case "barrier":
            ddl.barrier()
except ddl.DDLError as error:
    print(f"rank {RANK}: {error.code.name} after {time.monotonic() - start:.1f} s: {error}")
    try:
        ddl.barrier()
    except ddl.DDLError as later:
        print(f"rank {RANK} again: {later}", flush=True)
    if how in ("exit", "raise"):
        raise
    # Raising would end the whole job, and perhaps before the other ranks have told their error.
    os._exit(7)
