"""JAX in a job of ranks: who and where they are, and when its collectives start and end.

`jax.distributed.initialize()` asks JAX's classes of clusters in their order, and ours comes first.
What ranks must know of each other goes by ddl, which has started by then.
"""

from __future__ import annotations

import atexit
import os
import socket
from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np
from jax._src import clusters
from jaxlib import _jax

from ddl_jax import _hook

_held: list[socket.socket] = []  # the coordinator's port, until JAX listens there too


def register() -> None:
    """Make JAX's `initialize` and its CPU client take the job's ranks."""
    types = clusters.ClusterEnv._cluster_types
    types.remove(DdlCluster)
    types.insert(0, DdlCluster)
    _jax.get_distributed_runtime_client = _after_service(_jax.get_distributed_runtime_client)
    if os.environ.get(_hook.TRAMPOLINE) == _hook.library():
        from ddl_jax import _programs

        _jax.make_mpi_collectives = _starting_ddl(_jax.make_mpi_collectives)
        _programs.watch()


class DdlCluster(clusters.ClusterEnv):  # type: ignore[misc]
    """The ranks of `ddlrun`, of mpiexec, or of srun with an MPI."""

    name = "ddl"
    #: What `get_coordinator_address` has told: all ranks are in `initialize`, or have been.
    coordinator: str | None = None

    @classmethod
    def is_env_present(cls) -> bool:
        """Whether this process is a rank."""
        return _hook.is_a_rank(os.environ)

    @classmethod
    def get_coordinator_address(
        cls, timeout_secs: int | None, override_coordinator_port: str | None
    ) -> str:
        """Rank 0's address and a free port of it, told to all; collective."""
        import ddl

        ddl.init()
        is_local = ddl.num_hosts() == 1
        host = "127.0.0.1" if is_local else _first_host()
        port = np.zeros(1, np.int64)
        if override_coordinator_port:
            port[0] = int(override_coordinator_port)
        else:
            if ddl.rank() == 0:
                port[0] = _hold_port(host if is_local else "")
            ddl.broadcast(port, root=0)
        cls.coordinator = f"{host}:{port[0]}"
        if is_local:  # JAX would listen on every address of the host
            os.environ.setdefault("JAX_COORDINATOR_BIND_ADDRESS", cls.coordinator)
        return cls.coordinator

    @classmethod
    def get_process_count(cls) -> int:
        """The number of ranks."""
        import ddl

        ddl.init()
        return ddl.size()

    @classmethod
    def get_process_id(cls) -> int:
        """The rank."""
        import ddl

        ddl.init()
        return ddl.rank()

    @classmethod
    def get_local_process_id(cls) -> int | None:
        """The number of the GPU that this rank takes among those that it sees."""
        import ddl

        ddl.init()
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        return 0 if visible and "," not in visible else ddl.local_rank()


def _first_host() -> str:
    """The first host as ddlrun calls it for torch, too; else by its own name."""
    import ddl

    told = os.environ.get("MASTER_ADDR") if "DDLRUN_WRAPPER" in os.environ else None
    return told or ddl.host_name(0)


def _hold_port(host: str) -> int:
    """A port that is free; no other user can take it before JAX, which shares it with us."""
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    holder.bind((host, 0))
    _held.append(holder)
    port: int = holder.getsockname()[1]
    return port


def _after_service(make: Callable[..., Any]) -> Callable[..., Any]:
    """`make`, which makes a rank's client of the coordinator, once that listens.

    A client that comes earlier is refused, and gRPC tries again no sooner than after a second.
    """

    @wraps(make)
    def get_distributed_runtime_client(address: str, *args: Any, **words: Any) -> Any:
        if address == DdlCluster.coordinator:
            import ddl

            ddl.barrier()  # rank 0 has started its service
        return make(address, *args, **words)

    return get_distributed_runtime_client


def _starting_ddl(make: Callable[[], Any]) -> Callable[[], Any]:
    """`make`, which starts XLA's collectives by MPI, once ddl runs in the same ranks."""

    @wraps(make)
    def make_mpi_collectives() -> Any:
        import ddl
        from jax._src import distributed

        ddl.init()
        processes = distributed.global_state.num_processes
        if processes != ddl.size():
            raise RuntimeError(
                f"jax.distributed has {processes} processes, but the job has {ddl.size()} ranks; "
                "call jax.distributed.initialize() without arguments, or set "
                f"{_hook.CHOICE}=gloo"
            )
        while _held:
            _held.pop().close()
        atexit.register(_wait_for_programs)
        return make()

    return make_mpi_collectives


def _wait_for_programs() -> None:
    """Let what this rank has dispatched end before ddl does: other ranks may wait for it."""
    from contextlib import suppress

    from ddl._exit import failure

    from ddl_jax import _programs

    if failure() is None:
        with suppress(Exception):  # its own rank has seen it, or will
            _programs.wait()
