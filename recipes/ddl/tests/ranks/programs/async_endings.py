"""The ways to end with operations under way. Arguments: which; a folder, for "at once"."""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
import time
from pathlib import Path

C = ctypes.CDLL(None)
LAST_WORDS = ctypes.c_char_p(b"ended well")
if sys.argv[1] == "without finalize":
    # Carried out after all else, in reverse: what is registered before libddl is loaded comes last.
    # mpiexec must not mind that the first rank takes its time.
    C.__cxa_atexit(C.puts, LAST_WORDS, None)
    if os.environ["PMI_RANK"] == "0":
        C.__cxa_atexit(C.usleep, ctypes.c_void_p(300_000), None)

import ddl  # noqa: E402
import numpy as np  # noqa: E402
from helpers import error_of  # noqa: E402

NUMBER = 30


def start_mpi(level: int) -> None:
    """Start MPI as a program would that knows nothing of ddl."""
    from ddl import _core  # it brings MPI along

    maps = Path("/proc/self/maps").read_text().splitlines()
    path = next(line.split()[-1] for line in maps if "/libmpi" in line)
    provided = ctypes.c_int()
    mpi = ctypes.CDLL(path)
    mpi.MPI_Init_thread(None, None, level, ctypes.byref(provided))
    assert provided.value == level, _core.mpi_library()
    atexit.register(mpi.MPI_Finalize)


def start() -> list[ddl.Handle]:
    ddl.init()
    return [
        ddl.allreduce_async_(np.ones(20_000 if i % 5 == 3 else 9 + i, np.int64))
        for i in range(NUMBER)
    ]


match sys.argv[1]:
    case "finalize":
        handles = start()
        group = ddl.new_group(list(range(ddl.size())))
        assert group is not None
        handles += [ddl.allreduce_async(np.ones(5), group=group) for _ in range(NUMBER)]
        size = ddl.size()
        ddl.finalize()
        for handle in handles:
            assert handle.done()
            assert (handle.wait() == size).all()
    case "exit":
        handles = start()
    case "exit, dropped":
        start()
    case "exit of one":
        # The others have more under way: it fails, since the last rank ends.
        handles = start()
        if ddl.rank() == ddl.size() - 1:
            print("ended well", flush=True)
            sys.exit(0)
        more = [ddl.allreduce_async(np.ones(9)) for _ in range(NUMBER)]
        assert all((handle.wait() == ddl.size()).all() for handle in handles)
        for handle in more:
            text = error_of(handle.wait)
            assert text.startswith("MISMATCH"), text
            assert "finalize()" in text
    case "without finalize":
        # As a C program that returns from main, while its operations wait for the last rank.
        handles = start()
        if ddl.rank() < ddl.size() - 1:
            lonely = [ddl.allreduce_async(np.ones(9)) for _ in range(NUMBER)]
        C.exit(0)
    case "at once":
        # mpiexec ends the others, and drops their words, when it sees the first one gone.
        handles = start()
        folder = Path(sys.argv[2])
        (folder / str(ddl.rank())).touch()
        while len(list(folder.iterdir())) < ddl.size():
            time.sleep(0.01)
        os._exit(0)
    case "other limits":
        ddl.init(f"-fusion_bytes {100 + int(os.environ['PMI_RANK'])}")
    case "threads":
        start_mpi(1)
        ddl.init()
        text = error_of(lambda: ddl.allreduce_async(np.ones(3)))
        assert "ARGUMENT: iallreduce: asynchronous calls need MPI_THREAD_MULTIPLE" in text, text
        assert "MPI was started with MPI_THREAD_FUNNELED; start it with" in text
        assert ddl.stats() == (0, 0, 0, 0)
        assert (ddl.allreduce(np.ones(3)) == ddl.size()).all()
        ddl.finalize()
print("ended well", flush=True)
