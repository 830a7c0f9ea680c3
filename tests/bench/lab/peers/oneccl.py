"""oneCCL, from its wheel, over Intel MPI; a peer in tests only."""

from __future__ import annotations

from pathlib import Path

from bench.lab.peers.install import LAB, compile_worker
from bench.lab.peers.intelmpi import IntelMpi
from support.pip import pip_prefix


def oneccl_worker() -> tuple[Path, Path, dict[str, str]]:
    """The environment with oneCCL and Intel MPI, the worker, and the variables that it needs."""
    prefix = pip_prefix("oneccl")
    folder = prefix / "lib" / "ccl" / "cpu" / "lib"  # the one in lib/ is for GPUs, and needs SYCL
    options = [str(LAB / "workers" / "oneccl.cc"), "-DMPICH_SKIP_MPICXX", f"-L{folder}"]
    mpicc = prefix / "bin" / "mpicc"
    worker = compile_worker("allreduce_oneccl.c", prefix, mpicc, *options, "-lccl", "-lstdc++")
    # The ranks do the work themselves: with threads beside them, all of which spin, two processors
    # are handed over every 100 ms, and 1 KiB takes 200 ms.
    variables = {
        "LD_LIBRARY_PATH": f"{folder}:{prefix}/lib",
        "CCL_ATL_TRANSPORT": "mpi",
        "CCL_WORKER_OFFLOAD": "0",
        "CCL_LOG_LEVEL": "error",
    }
    return prefix, worker, variables


class OneCcl(IntelMpi):
    """oneCCL's allreduce with the schedules that it chooses itself."""

    def __init__(self) -> None:
        """The row `oneccl`."""
        super().__init__("oneccl")

    def prepare(self) -> None:
        """Installs oneCCL and Intel MPI from pip."""
        self._prefix, self._worker, self._env = oneccl_worker()
