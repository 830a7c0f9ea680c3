"""JAX on the ranks' processes: gradients of a batch that is spread over them.

ddlrun -H localhost:2 python jax_processes.py weights.npy
"""

import socket
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from mpi4py import MPI

STEPS = 20


def loss(weights: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
    """The mean square error of a linear model."""
    return jnp.mean((x @ weights - y) ** 2)


def main(target: str) -> None:
    comm = MPI.COMM_WORLD
    port = None
    if comm.rank == 0:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
    jax.distributed.initialize(f"127.0.0.1:{comm.bcast(port)}", comm.size, comm.rank)
    assert jax.process_count() == comm.size
    mesh = jax.make_mesh((jax.device_count(),), ("ranks",))
    spread = NamedSharding(mesh, PartitionSpec("ranks"))
    same = NamedSharding(mesh, PartitionSpec())
    generator = np.random.default_rng(0)
    x = generator.normal(size=(64, 4)).astype(np.float32)
    y = x @ np.float32([1, -2, 3, 0.5])
    mine = slice(len(x) * comm.rank // comm.size, len(x) * (comm.rank + 1) // comm.size)
    inputs = jax.make_array_from_process_local_data(spread, x[mine])
    wanted = jax.make_array_from_process_local_data(spread, y[mine])
    weights = jax.device_put(jnp.zeros(4), same)
    step = jax.jit(lambda w, a, b: w - 0.2 * jax.grad(loss)(w, a, b), out_shardings=same)
    for _ in range(STEPS):
        weights = step(weights, inputs, wanted)
    if comm.rank == 0:
        np.save(target, np.asarray(weights))
    jax.distributed.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
