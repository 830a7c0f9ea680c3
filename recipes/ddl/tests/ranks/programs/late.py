"""The last rank comes late to an allreduce: after so many seconds in which it was not stopped."""

from __future__ import annotations

import os
import sys
import time

import ddl
import numpy as np

ddl.init()
ddl.barrier()
sys.stdout.write(f"pid {os.getpid()}\n")
sys.stdout.flush()
if ddl.rank() == ddl.size() - 1:
    for _ in range(int(float(sys.argv[1]) * 10)):
        time.sleep(0.1)
assert ddl.allreduce(np.ones(3))[0] == ddl.size()
ddl.finalize()
