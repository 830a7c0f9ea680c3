"""Ranks that do not come, or not with the same, where MPI would wait for them without a limit.

Argument: which. Every rank prints its error; the last rank is the one that is different.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

RANK, SIZE = int(os.environ["PMI_RANK"]), int(os.environ["PMI_SIZE"])
IS_LAST = RANK == SIZE - 1
how = sys.argv[1]
if how == "late for MPI" and IS_LAST:
    time.sleep(3)

import ddl  # noqa: E402
from helpers import error_of  # noqa: E402


def start(usual: str, last: str) -> str:
    return error_of(lambda: ddl.init(last if IS_LAST else usual))


match how:
    case "late for MPI":
        told = start("", "")
    case "bad option":
        told = start("", "-speed high")
    case "mode":
        told = start(f"-mode p:1x{SIZE}", f"-mode p:{SIZE}")
    case "topology":
        told = start("", "-topology /nowhere")
    case "late for the library":
        from mpi4py import MPI

        assert MPI.COMM_WORLD.size == SIZE
        if IS_LAST:
            time.sleep(4)
        told = start("-timeout 1", "-timeout 1")
    case "group":
        ddl.init("-timeout 1")
        if IS_LAST:
            time.sleep(4)
            told = "no error"
        else:
            told = error_of(lambda: ddl.new_group(range(SIZE)))
    case "group of others":
        ddl.init("-timeout 2")
        ranks = range(SIZE) if IS_LAST else [0, SIZE - 1]
        told = "no error" if 0 < RANK < SIZE - 1 else error_of(lambda: ddl.new_group(ranks))
Path(sys.argv[2], str(RANK)).write_text(told)
os._exit(0 if told == "no error" else 7)
