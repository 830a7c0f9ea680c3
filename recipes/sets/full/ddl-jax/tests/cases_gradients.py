"""Derivatives of `ddl.jax`: a gradient is that of the sum of all ranks' results."""

from collections.abc import Callable
from typing import Any

import ddl.jax as dj
import jax
import jax.numpy as jnp
import numpy as np
from harness import RANK, SIZE, case, everyone, given, same


def mine(*shape: int) -> jax.Array:
    return jnp.asarray(given(RANK, *shape))


def weights(*shape: int) -> jax.Array:
    """Another array on each rank, for a loss that tells the ranks apart."""
    return jnp.asarray(given(RANK + 50, *shape))


def all_weights(*shape: int) -> np.ndarray:
    return np.stack([given(rank + 50, *shape) for rank in range(SIZE)])


def gradient(function: Callable[[Any], Any], x: jax.Array, weight: jax.Array) -> jax.Array:
    loss = lambda value: jnp.sum(function(value) * weight)  # noqa: E731
    eager = jax.grad(loss)(x)
    same(jax.jit(jax.grad(loss))(x), np.asarray(eager))
    return eager


@case
def test_gradients_of_sums_and_means() -> None:
    total = all_weights(5).sum(0)
    same(gradient(dj.allreduce, mine(5), weights(5)), total)
    mean = gradient(lambda x: dj.allreduce(x, "mean"), mine(5), weights(5) * SIZE)
    same(mean, total)


@case
def test_gradients_of_blocks() -> None:
    gathered = gradient(dj.allgather, mine(3), weights(SIZE, 3))
    same(gathered, all_weights(SIZE, 3).sum(0)[RANK])
    scattered = gradient(dj.reducescatter, mine(2 * SIZE), weights(2))
    same(scattered, all_weights(2).reshape(-1))
    exchanged = gradient(dj.alltoall, mine(2 * SIZE), weights(2 * SIZE))
    same(exchanged, all_weights(2 * SIZE).reshape(SIZE, SIZE, 2)[:, RANK].reshape(-1))
    root = SIZE - 1
    spread = gradient(lambda x: dj.broadcast(x, root), mine(4), weights(4))
    same(spread, all_weights(4).sum(0) * (root == RANK))


def numeric(op: str) -> np.ndarray:
    """The gradient of the oracle, of all ranks' values at once."""
    reduce = {"min": jnp.min, "max": jnp.max, "product": jnp.prod}[op]
    total = jnp.asarray(all_weights(6).sum(0))
    loss = lambda rows: jnp.sum(reduce(rows, axis=0) * total)  # noqa: E731
    return np.asarray(jax.grad(loss)(jnp.asarray(everyone(6))))


@case
def test_gradients_of_minima_maxima_and_products() -> None:
    for op in ("min", "max", "product"):
        ours = gradient(lambda x, op=op: dj.allreduce(x, op), mine(6), weights(6))
        assert np.allclose(ours, numeric(op)[RANK]), (op, ours, numeric(op)[RANK])


@case
def test_forward_derivatives() -> None:
    tangents = all_weights(5)
    y, t = jax.jvp(dj.allreduce, (mine(5),), (weights(5),))
    same(y, everyone(5).sum(0))
    same(t, tangents.sum(0))
    _, t = jax.jit(lambda x, v: jax.jvp(dj.allgather, (x,), (v,)))(mine(5), weights(5))
    same(t, tangents)
    _, t = jax.jvp(lambda x: dj.allreduce(x, "product"), (mine(5),), (weights(5),))
    _, expected = jax.jvp(lambda r: jnp.prod(r, 0), (jnp.asarray(everyone(5)),), (tangents,))
    assert np.allclose(t, expected)


@case
def test_second_derivatives_and_jacobians() -> None:
    function = lambda x: jnp.sum(dj.allreduce(x) ** 2)  # noqa: E731
    hessian = jax.jit(jax.hessian(function))(mine(3))
    same(hessian, 2 * SIZE**2 * np.eye(3))
    jacobian = jax.jacfwd(dj.allreduce)(mine(3))
    same(jacobian, SIZE * np.eye(3))
    same(jax.jacrev(dj.allreduce)(mine(3)), SIZE * np.eye(3))


@case
def test_through_scan_vmap_and_remat() -> None:
    def loss(x: jax.Array) -> jax.Array:
        def step(carry: jax.Array, row: jax.Array) -> tuple[jax.Array, None]:
            return carry + dj.allreduce(row * weights(3)), None

        return jnp.sum(jax.lax.scan(step, jnp.zeros(3), x)[0])

    expected = np.broadcast_to(SIZE * np.asarray(weights(3)), (4, 3))
    same(jax.jit(jax.grad(loss))(mine(4, 3)), expected)
    same(jax.jit(jax.grad(jax.checkpoint(loss)))(mine(4, 3)), expected)
    batched = jax.vmap(jax.grad(lambda x: jnp.sum(dj.allreduce(x) * weights(3))))(mine(4, 3))
    same(batched, np.broadcast_to(all_weights(3).sum(0), (4, 3)))


@case
def test_an_optimizer_of_optax() -> None:
    import optax

    def loss(params: Any, x: jax.Array) -> jax.Array:
        return jnp.mean((x @ params["w"] + params["b"] - x.sum(1)) ** 2)

    def train(rows: np.ndarray, optimizer: Any) -> Any:
        params = {"w": jnp.zeros(4), "b": jnp.zeros(())}
        state = optimizer.init(params)

        @jax.jit
        def step(params: Any, state: Any) -> Any:
            gradients = jax.grad(loss)(params, jnp.asarray(rows))
            updates, state = optimizer.update(gradients, state, params)
            return optax.apply_updates(params, updates), state

        for _ in range(10):
            params, state = step(params, state)
        return params

    make = lambda: optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-2))  # noqa: E731
    ours = train(given(RANK, 8, 4), dj.DistributedOptimizer(make()))
    alone = train(everyone(8, 4).reshape(-1, 4), make())
    for name in ("w", "b"):
        assert np.allclose(ours[name], alone[name], rtol=1e-5), (ours, alone)
        rows = np.asarray(dj.allgather(ours[name]))
        assert (rows == rows[0]).all()
