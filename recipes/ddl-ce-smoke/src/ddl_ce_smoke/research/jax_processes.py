"""JAX on the ranks' processes: gradients of a batch that is spread over them.

ddlrun -H localhost:2 python -m ddl_ce_smoke.research.jax_processes weights.npy
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from ddl_ce_smoke.research.run import save

STEPS = 20


def loss(weights: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
    """The mean square error of a linear model."""
    return jnp.mean((x @ weights - y) ** 2)


def train() -> np.ndarray:
    """The weights, float32 of shape [4]."""
    jax.distributed.initialize()
    rank, size = jax.process_index(), jax.process_count()
    mesh = jax.make_mesh((jax.device_count(),), ("ranks",))
    spread = NamedSharding(mesh, PartitionSpec("ranks"))
    same = NamedSharding(mesh, PartitionSpec())
    generator = np.random.default_rng(0)
    x = generator.normal(size=(64, 4)).astype(np.float32)
    y = x @ np.array([1, -2, 3, 0.5], np.float32)
    mine = slice(len(x) * rank // size, len(x) * (rank + 1) // size)
    inputs = jax.make_array_from_process_local_data(spread, x[mine])
    wanted = jax.make_array_from_process_local_data(spread, y[mine])
    weights = jax.device_put(jnp.zeros(4), same)
    step = jax.jit(lambda w, a, b: w - 0.2 * jax.grad(loss)(w, a, b), out_shardings=same)
    for _ in range(STEPS):
        weights = step(weights, inputs, wanted)
    return np.asarray(weights)


if __name__ == "__main__":
    save(train, __doc__)
