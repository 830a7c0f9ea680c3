"""A process that rank 0 has forked ends as a program does, and the ranks go on. One argument: how.

The exit functions of the parent, of Python and of C, run in the child too.
"""

from __future__ import annotations

import ctypes
import os
import sys

import ddl
import numpy as np
from helpers import error_of

ddl.init()


def total() -> int:
    return int(ddl.allreduce(np.array([1], np.int32))[0])


def end_as_child(how: str) -> None:
    match how:
        case "exit":
            sys.exit(3)
        case "exit of C":
            ctypes.CDLL(None).exit(3)
        case "exception":
            raise ZeroDivisionError("the child's own mistake")
        case "asks":
            assert (ddl.rank(), ddl.host_index(), ddl.initialized()) == (0, 0, True)
        case "communicates":
            for call in (total, ddl.finalize, lambda: ddl.send(np.ones(1), 0), ddl.barrier):
                told = error_of(call)
                assert told.startswith(f"NOT_INITIALIZED: process {os.getpid()} was forked"), told
                assert f"process {os.getppid()}, which alone may communicate" in told, told
            assert "was forked" in error_of(lambda: ddl.new_group([0]))


assert total() == ddl.size()
handle = ddl.allreduce_async(np.ones(4))  # the thread of the queue is not the child's
handle.wait()
if ddl.rank() == 0:
    child = os.fork()
    if child == 0:
        if sys.argv[1] == "exception":
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
        end_as_child(sys.argv[1])
        sys.exit(3)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code == (1 if sys.argv[1] == "exception" else 3), code
assert total() == ddl.size()
print("ended well", flush=True)
