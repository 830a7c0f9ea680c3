"""Run by ddlrun: rank 1 does what the first argument says, while the others reduce."""

import os
import signal
import sys
import time
from collections.abc import Callable

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

jax.distributed.initialize()
mesh = Mesh(jax.devices(), "i")


def run(function: Callable[[jax.Array], jax.Array], n: int) -> jax.Array:
    whole = np.ones((jax.process_count() * n,), np.float32)
    sharding = NamedSharding(mesh, P("i"))
    array = jax.make_array_from_callback(whole.shape, sharding, lambda index: whole[index])
    mapped = jax.shard_map(function, mesh=mesh, in_specs=P("i"), out_specs=P("i"))
    return jax.block_until_ready(jax.jit(mapped)(array))


def reduce(x: jax.Array) -> jax.Array:
    return jax.lax.psum(x, "i") + x * 0


def shift(x: jax.Array) -> jax.Array:
    size = jax.process_count()
    return jax.lax.ppermute(x, "i", [(rank, (rank + 1) % size) for rank in range(size)])


way, function = sys.argv[1], shift if sys.argv[2:] == ["shift"] else reduce
run(function, 4)
if jax.process_index() == 1:
    if way == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif way == "raises":
        raise KeyError("mine")
    elif way == "leaves":
        sys.exit()
    elif way == "sleeps":
        time.sleep(300)
    elif way == "differs":
        run(function, 8)
run(function, 4)
