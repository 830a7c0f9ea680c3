"""An unedited program of JAX's, which is not told who it is."""

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

jax.distributed.initialize()
mesh = Mesh(jax.devices(), "ranks")
total = jax.jit(
    jax.shard_map(lambda x: jax.lax.psum(x, "ranks"), mesh=mesh, in_specs=P("ranks"), out_specs=P())
)
ones = np.ones((jax.process_count(), 1000), np.float32)
x = jax.make_array_from_callback(ones.shape, NamedSharding(mesh, P("ranks")), lambda i: ones[i])
print("total", int(total(x).addressable_data(0)[0, 0]), "of", jax.process_index())
