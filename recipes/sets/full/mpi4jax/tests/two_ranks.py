"""A sum inside jit, on each of two ranks, and its gradient."""

import jax
import jax.numpy as jnp
from mpi4jax import allreduce
from mpi4py import MPI

comm = MPI.COMM_WORLD
total = jax.jit(lambda x: allreduce(x, op=MPI.SUM, comm=comm))
assert total(jnp.full(3, float(comm.rank + 1))).tolist() == [3.0] * 3
loss = jax.grad(lambda x: total(x).sum())
assert loss(jnp.ones(3)).tolist() == [1.0] * 3
