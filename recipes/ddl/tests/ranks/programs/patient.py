"""Rank 0 needs longer to save than the timeout of torch's group: patient.py FOLDER BACKEND."""

import os
import sys
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from ddl.checkpoint import Checkpointer

LIMIT = 3.0


class Slow:
    def state_dict(self) -> dict[str, Any]:
        time.sleep(2.5 * LIMIT)
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


def begin(limit: float) -> None:
    dist.init_process_group(
        sys.argv[2],
        init_method=f"file://{sys.argv[1]}.{limit}",
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
        timeout=timedelta(seconds=limit),
    )


begin(60.0)
dist.barrier()  # the slow start is over
dist.destroy_process_group()
begin(LIMIT)
with Checkpointer(sys.argv[1], slow=Slow()) as saver:
    for _ in saver.steps(1):
        saver.step()
print(f"rank {dist.get_rank()} has saved", flush=True)
if dist.get_rank() == 1:
    try:
        dist.all_reduce(torch.ones(1))
    except RuntimeError:
        print("rank 1 was not met", flush=True)
    os._exit(1)
time.sleep(3 * LIMIT)
