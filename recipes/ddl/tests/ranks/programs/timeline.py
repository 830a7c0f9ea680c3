"""Collectives of several kinds, for tests of the timeline: `timeline.py WAY [FILE]`."""

import os
import signal
import sys
import time

import ddl
import numpy as np

LATE_S = 0.3


def every_kind() -> None:
    """Collectives of all ranks, for whose first the last rank is late."""
    ddl.barrier()
    if ddl.rank() == ddl.size() - 1:
        time.sleep(LATE_S)
    ddl.allreduce(np.ones(1 << 16, np.float32), "average")
    ddl.broadcast(np.zeros(1000, np.int64), root=0)
    handles = [ddl.allreduce_async(np.ones(10, np.float64)) for _ in range(4)]
    for handle in handles:
        handle.wait()
    group = ddl.new_group(sorted({0, ddl.size() - 1}))
    if ddl.rank() in (0, ddl.size() - 1):
        ddl.allgather(np.ones(5, np.int32), group=group)


def main() -> None:
    """Do as the command line says."""
    way = sys.argv[1]
    os.umask(0)  # what may others read? Nothing, whatever this is
    if way == "differ" and os.environ["PMI_RANK"] == "1":
        os.environ["DDL_TIMELINE"] += ".other"
    ddl.init()
    if way == "kinds":
        every_kind()
    elif way == "many":
        x = np.ones(1, np.float32)
        for _ in range(20_000):
            ddl.allreduce_(x, "max")
    elif way in ("lose", "abort"):
        ddl.barrier()
        ddl.allreduce(np.ones(1 << 12, np.float32))
        if ddl.rank() == ddl.size() - 1:
            if way == "lose":
                os.kill(os.getpid(), signal.SIGKILL)
            ddl.abort("of no use")
        ddl.barrier()
    elif way == "no finalize":
        ddl.barrier()
        os._exit(0)
    ddl.finalize()


if __name__ == "__main__":
    main()
