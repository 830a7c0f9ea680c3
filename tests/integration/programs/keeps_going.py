"""A rank whose group goes on without others, for ddlrun -keep_going.

    keeps_going.py RANKS SUMMED SECONDS

RANKS, as 0,3, are those that a test will leave there. The file SUMMED comes when all have summed.
So many SECONDS after the loss the others have another sum, and end.
"""

from __future__ import annotations

import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from ddl_torch.companion import CompanionError, CompanionGroup


class Group(CompanionGroup, dist.ProcessGroup):
    pass


def main() -> None:
    stay = [int(number) for number in sys.argv[1].split(",")]
    summed, seconds = Path(sys.argv[2]), float(sys.argv[3])
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = dist.TCPStore(address, port, is_master=rank == 0, wait_for_workers=False)
    group = Group(timeout=timedelta(seconds=120))

    def meet(name: str, ranks: list[int]) -> None:
        group.configure(f"{address}:{port}/{name}", "", ranks.index(rank), len(ranks))

    def add() -> float:
        numbers = torch.full((100_000,), float(rank + 1))
        group.allreduce([numbers]).wait()
        assert bool((numbers == numbers[0]).all())
        return float(numbers[0])

    meet("all", list(range(size)))
    print("sum", f"{add():g}", flush=True)
    summed.touch()
    began = time.monotonic()
    try:
        while True:
            began = time.monotonic()
            add()
    except CompanionError as error:
        if rank not in stay:  # it is cut off; whoever has lost it ends it
            time.sleep(600)
        print(f"noticed after {time.monotonic() - began:.1f} s:", error, file=sys.stderr)
    meet("left", stay)
    print("then", f"{add():g}", flush=True)
    time.sleep(seconds)
    print("late", f"{add():g}", flush=True)
    store.add("through", 1)
    while rank == 0 and store.add("through", 0) < len(stay):  # it has the store
        time.sleep(0.1)
    group.shutdown()


main()
