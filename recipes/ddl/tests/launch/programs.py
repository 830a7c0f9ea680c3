"""Programs whose ranks do as a test tells them, and the words of ddlrun about them."""

import sys
from pathlib import Path

import pytest

from conftest import Marked, Result

# Every rank runs this: argv is the mark and one piece of code per rank; the last also for the rest.
RANKS = """
import os, signal, subprocess, sys, time
rank = int(os.environ["RANK"])
def say(*words):  # not print: a handler that prints must not come in the middle of one
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())
exec(sys.argv[2:][min(rank, len(sys.argv) - 3)])
"""
SLEEP = "time.sleep(600)"


def ranks(marked: Marked, *codes: str) -> list[str]:
    return [sys.executable, "-c", RANKS, marked.mark, *codes]


def last_words(result: Result) -> str:
    """From ddlrun's verdict to the end."""
    start = result.stderr.index("ddlrun: ")
    words = result.stderr[start:]
    assert all(line.startswith("ddlrun: ") for line in words.splitlines()), words
    return words


MPI = """
import ctypes, sys
mpi = ctypes.CDLL(sys.argv[1])
WORLD = 0x44000000  # MPICH's MPI_COMM_WORLD
mpi.MPI_Init(None, None)
rank = ctypes.c_int()
mpi.MPI_Comm_rank(WORLD, ctypes.byref(rank))
exec(sys.argv[3])
mpi.MPI_Barrier(WORLD)
mpi.MPI_Finalize()
"""


def libmpi() -> str:
    for folder in (Path(sys.executable).parents[1] / "lib", Path(sys.prefix) / "lib"):
        found = list(folder.glob("libmpi.so*"))
        if found:  # pip's wheel has stubs in place of links
            return str(max(found, key=lambda path: path.stat().st_size))
    pytest.skip("no libmpi.so beside this python")


def mpi(marked: Marked, code: str) -> list[str]:
    return [sys.executable, "-c", MPI, libmpi(), marked.mark, code]
