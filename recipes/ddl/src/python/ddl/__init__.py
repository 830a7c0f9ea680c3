"""DDL-CE: collectives that know the topology, on NumPy arrays, torch and TensorFlow tensors.

    import ddl
    import numpy as np

    ddl.init()
    total = ddl.allreduce(np.ones(1000, np.float32))  # on every rank: the number of ranks

Every collective also exists with `_async`: it returns at once with a `Handle`.

Run it with `ddlrun -H host1:4,host2:4 python program.py`, or on one rank with `python program.py`.
With DDL_OPTIONS set, as `ddlrun` sets it, the first call starts the library and `init` may be left
out.

A rank that ends by an uncaught exception ends the whole job, since the others would wait for it. A
rank that leaves by `sys.exit` while others are in a collective makes them raise DDLError.

TensorFlow's tensors, and what is for Keras (`DDLCallback`, `DistributedOptimizer`, ...), need the
package ddl-tensorflow. With it, and under `ddlrun`, this import lets Keras's optimizers average.
"""

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ddl._async import (
        Handle,
        Stats,
        allgather_async,
        allreduce_async,
        allreduce_async_,
        barrier_async,
        broadcast_async,
        reduce_scatter_async,
        stats,
    )
    from ddl._collectives import (
        Group,
        Op,
        allgather,
        allreduce,
        allreduce_,
        allreduce_n,
        barrier,
        bcast,
        broadcast,
        new_group,
        reduce_scatter,
    )
    from ddl._exchange import alltoall, alltoallv, gather, recv, scatter, send
    from ddl._life import (
        abort,
        finalize,
        host_index,
        host_name,
        init,
        initialized,
        local_rank,
        local_size,
        num_hosts,
        rank,
        set_timeout,
        size,
        timeout,
    )
    from ddl._reduce import reduce, reduce_async
    from ddl.errors import DDLError, DDLValueError, Result

    __version__: str

__all__ = [
    "DDLError",
    "DDLValueError",
    "Group",
    "Handle",
    "Op",
    "Result",
    "Stats",
    "abort",
    "allgather",
    "allgather_async",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "allreduce_n",
    "alltoall",
    "alltoallv",
    "barrier",
    "barrier_async",
    "bcast",
    "broadcast",
    "broadcast_async",
    "finalize",
    "gather",
    "host_index",
    "host_name",
    "init",
    "initialized",
    "local_rank",
    "local_size",
    "new_group",
    "num_hosts",
    "rank",
    "recv",
    "reduce",
    "reduce_async",
    "reduce_scatter",
    "reduce_scatter_async",
    "scatter",
    "send",
    "set_timeout",
    "size",
    "stats",
    "timeout",
]

_HOMES = {
    "_async": "Handle Stats allgather_async allreduce_async allreduce_async_ barrier_async "
    "broadcast_async reduce_scatter_async stats",
    "_collectives": "Group Op allgather allreduce allreduce_ allreduce_n barrier bcast broadcast "
    "new_group reduce_scatter",
    "_exchange": "alltoall alltoallv gather recv scatter send",
    "_life": "abort finalize host_index host_name init initialized local_rank local_size num_hosts "
    "rank set_timeout size timeout",
    "_reduce": "reduce reduce_async",
    "errors": "DDLError DDLValueError Result",
}


def __getattr__(name: str) -> Any:
    """Loads MPI and NumPy at the first use: `ddl.launch` starts where neither does, and at once."""
    from importlib import import_module

    if name == "__version__":
        value: Any = import_module("ddl._core").version()
    else:
        part = next((part for part, names in _HOMES.items() if name in names.split()), None)
        if part:
            value = getattr(import_module(f"ddl.{part}"), name)
        else:
            value = import_module("ddl._frameworks").member(name)
        if value is None:
            raise AttributeError(f"module 'ddl' has no attribute '{name}'")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), "__version__", *__all__]


# Only under `ddlrun`, whose own start imports nothing but the launcher.
if "DDL_OPTIONS" in os.environ:
    from ddl import _frameworks

    _frameworks.activate()
