"""`ddl.jax`: collectives inside `jax.jit`, and an optimizer for optax (of the package ddl-jax)."""

from ddl_jax.functions import (
    allgather,
    allreduce,
    alltoall,
    barrier,
    broadcast,
    rank,
    reducescatter,
    size,
)
from ddl_jax.optimizer import DistributedOptimizer

__all__ = [
    "DistributedOptimizer",
    "allgather",
    "allreduce",
    "alltoall",
    "barrier",
    "broadcast",
    "rank",
    "reducescatter",
    "size",
]
