"""An elastic job whose worker on the host 127.0.0.1 dies again and again.

Usage: hvd_restarts.py TIMES FILE. It kills itself, or raises, in a step after each beginning, as
long as FILE has less than TIMES lines, of which it adds one; then all go on to the end.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch
from horovod import torch as hvd

TIMES, FILE = int(sys.argv[1]), Path(sys.argv[2])


def deaths() -> int:
    return len(FILE.read_text().splitlines()) if FILE.exists() else 0


def maybe_die() -> None:
    if os.environ["HOROVOD_HOSTNAME"] != "127.0.0.1" or hvd.size() < 2:
        return
    count = deaths()
    if count < TIMES:
        with FILE.open("a") as file:
            print(f"{os.getpid()} dies", file=file)
        if count % 2:
            sys.exit("ends by itself")
        os.kill(os.getpid(), signal.SIGKILL)


@hvd.elastic.run
def train(state: Any) -> None:
    while deaths() < TIMES or hvd.size() < 2 or state.last < 3:
        total = hvd.allreduce(torch.ones(1000), op=hvd.Sum, name="ones")
        assert (total == hvd.size()).all()
        maybe_die()
        time.sleep(0.02)
        if deaths() >= TIMES and hvd.size() == 2:
            state.last += 1
        state.commit()


if __name__ == "__main__":
    hvd.init()
    train(hvd.elastic.TorchState(last=0))
    print(f"ended with {hvd.size()} workers after {deaths()} deaths", flush=True)
