"""DDL-CE's collectives in TensorFlow and Keras.

Users name what is here as `ddl.DDLCallback`, `ddl.grads_reduce` and so on. `import ddl` in a
program that `ddlrun` started is enough for Keras and for TensorFlow 1: optimizers average their
gradients over the ranks, and `fit`, or a session's first step, begins with rank 0's variables.

Keras may run on TensorFlow, PyTorch or JAX (backends/). TensorFlow is loaded for itself alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddl_tensorflow import _import_hook

if TYPE_CHECKING:
    from ddl_tensorflow.callbacks import DDLCallback, DDLGlobalVariablesCallback
    from ddl_tensorflow.data import shard
    from ddl_tensorflow.moving import allgather, alltoall, bcast, broadcast, broadcast_n
    from ddl_tensorflow.optimizers import DistributedOptimizer, wrap
    from ddl_tensorflow.reducing import allreduce, allreduce_n, grads_reduce, reduce_scatter

__all__ = [
    "DDLCallback",
    "DDLGlobalVariablesCallback",
    "DistributedOptimizer",
    "activate",
    "allgather",
    "allreduce",
    "allreduce_n",
    "alltoall",
    "bcast",
    "broadcast",
    "broadcast_n",
    "grads_reduce",
    "reduce_scatter",
    "shard",
    "wrap",
]

_import_hook.watch_own()

_HOMES = {
    "callbacks": "DDLCallback DDLGlobalVariablesCallback",
    "data": "shard",
    "moving": "allgather alltoall bcast broadcast broadcast_n",
    "optimizers": "DistributedOptimizer wrap",
    "reducing": "allreduce allreduce_n grads_reduce reduce_scatter",
}


def activate() -> None:
    """Let optimizers average by themselves, once imported; `ddl` calls this under `ddlrun`.

    It costs next to nothing: neither TensorFlow nor MPI is loaded.
    """
    from ddl_tensorflow import _threads

    _threads.share_cores()
    _import_hook.when_imported("tensorflow", "ddl_tensorflow.tf1", "average_always")
    _import_hook.when_imported("keras", "ddl_tensorflow.optimizers", "average_always")
    _import_hook.when_imported("tf_keras", "ddl_tensorflow.keras2", "average_always")


def __getattr__(name: str) -> Any:
    """Loads TensorFlow at the first use."""
    from importlib import import_module

    home = next((home for home, names in _HOMES.items() if name in names.split()), None)
    if home is None:
        raise AttributeError(f"module 'ddl_tensorflow' has no attribute '{name}'")
    if home == "callbacks":
        import_module("ddl_tensorflow.optimizers")  # callbacks ask what optimizers there are
    value = getattr(import_module(f"ddl_tensorflow.{home}"), name)
    globals()[name] = value
    return value
