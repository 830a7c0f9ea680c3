"""A network of Flax on the ranks' processes, each with its share of the batch, by optax.

ddlrun -H localhost:2 python -m ddl_ce_smoke.research.flax_model weights.npy
"""

from __future__ import annotations

from typing import Any

import ddl.jax
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen

from ddl_ce_smoke.research.run import save

STEPS = 20


def train() -> np.ndarray:
    """The weights, flat, float32."""
    model = linen.Sequential([linen.Dense(8), jnp.tanh, linen.LayerNorm(), linen.Dense(1)])
    generator = np.random.default_rng(0)
    x = generator.normal(size=(64, 4)).astype(np.float32)
    y = np.sin(x.sum(1, keepdims=True))
    mine = slice(ddl.jax.rank(), None, ddl.jax.size())
    weights = ddl.jax.broadcast(model.init(jax.random.key(ddl.jax.rank()), x[:1]))
    optimizer = ddl.jax.DistributedOptimizer(optax.adam(1e-2))
    state = optimizer.init(weights)

    def loss(weights: Any) -> jax.Array:
        return jnp.mean((model.apply(weights, x[mine]) - y[mine]) ** 2)

    @jax.jit
    def step(weights: Any, state: Any) -> Any:
        updates, state = optimizer.update(jax.grad(loss)(weights), state, weights)
        return optax.apply_updates(weights, updates), state

    for _ in range(STEPS):
        weights, state = step(weights, state)
    return np.concatenate([np.asarray(leaf).ravel() for leaf in jax.tree.leaves(weights)])


if __name__ == "__main__":
    save(train, __doc__)
