"""A transformer that JAX spreads over a mesh, batches one way and weights the other.

ddlrun -H localhost:4 python -m ddl_ce_smoke.research.mesh_transformer weights.npy
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ddl_ce_smoke.research.run import save

STEPS, BATCH, LENGTH, WORDS, WIDTH, HEADS = 10, 8, 6, 12, 16, 4
#: How each matrix is spread: by its columns or by its rows, as Megatron does.
PARTS = {
    "embedding": PartitionSpec(),
    "query": PartitionSpec(None, "weights"),
    "key": PartitionSpec(None, "weights"),
    "value": PartitionSpec(None, "weights"),
    "out": PartitionSpec("weights", None),
    "up": PartitionSpec(None, "weights"),
    "down": PartitionSpec("weights", None),
}


def loss(weights: dict[str, jax.Array], words: jax.Array) -> jax.Array:
    """The cross entropy of each next word, after one layer of attention and one of a network."""
    x = weights["embedding"][words]
    heads = [
        (x @ weights[name]).reshape(*x.shape[:2], HEADS, -1) for name in ("query", "key", "value")
    ]
    query, key, value = heads
    scores = jnp.einsum("bihd,bjhd->bhij", query, key) / np.sqrt(WIDTH // HEADS)
    scores = jnp.where(jnp.tri(LENGTH, dtype=bool), scores, -1e9)
    mixed = jnp.einsum("bhij,bjhd->bihd", jax.nn.softmax(scores), value)
    x = x + mixed.reshape(x.shape) @ weights["out"]
    x = x + jax.nn.gelu(x @ weights["up"]) @ weights["down"]
    chances = jax.nn.log_softmax(x @ weights["embedding"].T)[:, :-1]
    return -jnp.take_along_axis(chances, words[:, 1:, None], axis=-1).mean()


def first_weights() -> dict[str, np.ndarray]:
    """Float32, the same on each rank."""
    generator = np.random.default_rng(0)
    shapes = {name: (WIDTH, WIDTH) for name in PARTS}
    shapes |= {"embedding": (WORDS, WIDTH), "up": (WIDTH, 4 * WIDTH), "down": (4 * WIDTH, WIDTH)}
    return {
        name: generator.normal(0, 0.2, shape).astype(np.float32) for name, shape in shapes.items()
    }


def mesh() -> Mesh:
    """Two columns for the weights where the number of ranks is even."""
    columns = 2 if jax.device_count() % 2 == 0 else 1
    return Mesh(np.reshape(jax.devices(), (-1, columns)), ("batches", "weights"))


def train() -> np.ndarray:
    """The weights, flat, float32."""
    jax.distributed.initialize()
    ranks = mesh()

    def spread(array: np.ndarray, part: PartitionSpec) -> jax.Array:
        sharding = NamedSharding(ranks, part)
        return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])

    weights = {name: spread(array, PARTS[name]) for name, array in first_weights().items()}
    shardings = {name: array.sharding for name, array in weights.items()}

    def step(weights: Any, words: jax.Array) -> Any:
        return jax.tree.map(lambda w, g: w - 0.5 * g, weights, jax.grad(loss)(weights, words))

    compiled = jax.jit(step, out_shardings=shardings)
    generator = np.random.default_rng(1)
    for _ in range(STEPS):
        words = np.sort(generator.integers(0, WORDS, (BATCH, LENGTH)), axis=1)
        weights = compiled(weights, spread(words, PartitionSpec("batches")))
    same = NamedSharding(ranks, PartitionSpec())
    whole = jax.jit(lambda tree: tree, out_shardings=same)(weights)
    return np.concatenate([np.asarray(whole[name]).ravel() for name in sorted(whole)])


if __name__ == "__main__":
    save(train, __doc__)
