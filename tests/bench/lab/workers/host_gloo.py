"""What host.h does, with torch.distributed's Gloo in place of MPI; starts its own ranks.

RANKS host SECONDS BYTES...
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from bench.lab.workers.first import be_first

MOST_BATCHES = 200
PERIOD = 509


def start(ranks: int) -> int:
    """This program once for each rank; the worst exit status."""
    with tempfile.TemporaryDirectory() as folder:
        own = {"WORLD_SIZE": str(ranks), "STORE": f"file://{folder}/store", "OMP_NUM_THREADS": "1"}
        words = [sys.executable, __file__, *sys.argv[1:]]
        processes = [
            subprocess.Popen(words, env=os.environ | own | {"RANK": str(rank)})
            for rank in range(ranks)
        ]
        return max(abs(process.wait()) for process in processes)


def be_a_rank(seconds: float, sizes: list[int]) -> None:
    """Check a call of each size, then batches of calls in place."""
    import torch
    import torch.distributed as dist

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=os.environ["STORE"], rank=rank, world_size=size)

    def batch(data: torch.Tensor, calls: int) -> tuple[float, float, float]:
        data.zero_()
        dist.barrier()
        begin = time.monotonic()
        for _ in range(calls):
            dist.all_reduce(data)
        end = time.monotonic()
        slowest = torch.tensor((end - begin) / calls, dtype=torch.float64)
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        return begin, end, slowest.item()

    def batches(data: torch.Tensor) -> Iterator[tuple[float, float, float]]:
        *_, once = batch(data, 3)
        least = 2e-3 if once < 2e-3 else 40e-3  # as in host.h
        calls = int(least / once) + 1 if once < least else 1
        number, spent = 0, 0.0
        while number < 5 or (spent < seconds and number < MOST_BATCHES):
            number, last = number + 1, batch(data, calls)
            spent += last[-1] * calls
            yield last

    if size <= (os.cpu_count() or 1):
        be_first()
    for nbytes in sizes:
        positions = torch.arange(nbytes // 4) % PERIOD
        data = (positions * (rank + 1)).remainder_(32).float()
        expected = sum((positions * (r + 1)).remainder_(32).float() for r in range(size))
        dist.all_reduce(data)
        wrong = (data != expected).sum()
        del positions, expected
        dist.all_reduce(wrong)
        report = {"bytes": nbytes, "wrong": int(wrong), "library": f"gloo of {torch.__version__}"}
        found = list(batches(data))
        if rank == 0:
            print(json.dumps({**report, "batches": found}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    if "STORE" in os.environ:
        be_a_rank(float(sys.argv[3]), [int(word) for word in sys.argv[4:]])
    else:
        sys.exit(start(int(sys.argv[1])))
