"""The ways that a program may start and end the library. One argument: which."""

from __future__ import annotations

import os
import sys
import time

import ddl
import numpy as np
from helpers import error_of


def total() -> int:
    return int(ddl.allreduce(np.array([1], np.int32))[0])


match sys.argv[1]:
    case "explicit":
        assert not ddl.initialized()
        ddl.init()
        ddl.init()
        assert ddl.initialized()
        assert total() == ddl.size()
        ddl.finalize()
        assert not ddl.initialized()
    case "at exit":
        ddl.init()
        assert total() == ddl.size()
    case "rank 0 goes on alone":
        ddl.init("-timeout 1")
        assert total() == ddl.size()
        if ddl.rank() == 0:
            time.sleep(3)  # as if it evaluated or saved a model
    case "by DDL_OPTIONS":
        os.environ["DDL_OPTIONS"] = "-timeout 7"
        assert total() == ddl.size()
        assert ddl.timeout() == 7
    case "by variable":
        print(ddl.size())
    case "not at all":
        assert error_of(ddl.rank) == (
            "NOT_INITIALIZED: ddl is not initialised; call ddl_init first"
        )
    case "mpi4py first":
        from mpi4py import MPI

        ddl.init()
        assert total() == MPI.COMM_WORLD.Get_size()
        ddl.finalize()
        MPI.COMM_WORLD.Barrier()  # still there: it is not ours to end
    case "mpi4py, at exit":
        from mpi4py import MPI

        ddl.init()
        assert total() == MPI.COMM_WORLD.Get_size()
    case "mpi4py ended":
        from mpi4py import MPI

        MPI.Finalize()
        assert "has already been finalised" in error_of(ddl.init)
    case "again":
        ddl.init()
        ddl.finalize()
        assert "has already been finalised" in error_of(ddl.init)
    case "bad options, then good":
        assert "51 ranks" in error_of(lambda: ddl.init("-mode r:17x3"))
        ddl.init()
        assert total() == ddl.size()
    case "fork":
        ddl.init()
        child = os.fork()
        if child == 0:
            os._exit(3)
        assert os.waitpid(child, 0)[1] >> 8 == 3
        assert total() == ddl.size()
    case "trace":
        ddl.init("-dbg_level 2 -dump_iter 1 -dev_sync 1 -rebind_iter 10")
        assert total() == ddl.size()
print("ended well", flush=True)
