"""Random collectives, checked, until something happens to one rank at a random moment; all report.

Arguments: what happens to the last rank (kill, stop; cut: somebody pulls its host's cable when the
file `fault` is there, which is made at that moment), the seed, a folder for `fault` and for the
reports, named by rank.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from pathlib import Path

import ddl
import numpy as np

ddl.init()
RANK, SIZE = ddl.rank(), ddl.size()
how, seed, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
shared = random.Random(seed)  # the same calls on all ranks
moment = 0.05 + random.Random(seed + 1).random()

if RANK == SIZE - 1:
    print("pid", os.getpid(), flush=True)
    signals = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "cut": 0}  # 0 does nothing

    def fault() -> None:
        (folder / "fault").touch()
        os.kill(os.getpid(), signals[how])

    threading.Timer(moment, fault).start()


def one_call() -> None:
    """One collective on a random size; its result must be exact."""
    count = shared.choice([1, 100, 5000, 100_000, 1_000_000])
    what = shared.choice(["allreduce", "async", "allgather", "reduce_scatter", "broadcast"])
    mine = (np.arange(count) % 7 + RANK).astype(np.float32)
    total = np.arange(count) % 7 * SIZE + SIZE * (SIZE - 1) // 2
    match what:
        case "allreduce":
            assert (ddl.allreduce(mine) == total).all()
        case "async":
            handles = [ddl.allreduce_async(mine[:1000]) for _ in range(5)]
            for handle in handles:
                assert (handle.wait() == total[:1000]).all()
        case "allgather":
            for rank, row in enumerate(ddl.allgather(mine)):
                assert (row == np.arange(count) % 7 + rank).all()
        case "reduce_scatter":
            assert (ddl.reduce_scatter(np.tile(mine, SIZE)) == total).all()
        case "broadcast":
            root = shared.randrange(SIZE)
            assert (ddl.broadcast(mine, root) == np.arange(count) % 7 + root).all()


ddl.barrier()
begin = time.monotonic()
calls = 0
try:
    while True:
        one_call()
        calls += 1
except ddl.DDLError as error:
    late = time.monotonic() - begin - moment
    report = f"rank {RANK}: {error.code.name} after {calls} calls, {late:.1f} s late: {error}"
    (folder / str(RANK)).write_text(report)
    print(report, flush=True)
    # Raising would end the whole job, and perhaps before the other ranks have told their error.
    os._exit(7)
