"""Ranks that do not come, or not with the same, where MPI would wait for them without a limit.

Arguments: how, the rank that is different, and the folder to which each rank writes its error.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

RANK, SIZE = int(os.environ["PMI_RANK"]), int(os.environ["PMI_SIZE"])
how, odd, folder = sys.argv[1:]
IS_ODD = int(odd) == RANK
if how == "late for MPI" and IS_ODD:
    time.sleep(3)

import ddl  # noqa: E402
from helpers import error_of  # noqa: E402


def start(usual: str, other: str) -> str:
    return error_of(lambda: ddl.init(other if IS_ODD else usual))


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
        if IS_ODD:
            time.sleep(3)
        told = start("-timeout 1", "-timeout 1")
        assert told.split(": ", 1)[1] in error_of(ddl.init)
    case "group":
        ddl.init("-timeout 1")
        if IS_ODD:
            time.sleep(3)
        told = error_of(lambda: ddl.new_group(range(SIZE)))
        assert "unusable since an earlier error" in error_of(ddl.barrier)
    case "group of others":
        ddl.init("-timeout 2")
        ranks = range(SIZE) if IS_ODD else [0, SIZE - 1]
        told = "no error" if 0 < RANK < SIZE - 1 else error_of(lambda: ddl.new_group(ranks))
    case "group in another order":
        ddl.init("-timeout 2")
        ranks = range(SIZE)
        told = error_of(lambda: ddl.new_group(ranks[::-1] if IS_ODD else ranks))
        assert error_of(ddl.barrier) == "no error"
Path(folder, str(RANK)).write_text(told)
while len(list(Path(folder).iterdir())) < SIZE:  # nobody shall be missed because it has ended
    time.sleep(0.05)
if "late" not in how or how == "late for MPI":
    sys.exit()  # MPI ends well
os._exit(0 if told == "no error" else 7)
