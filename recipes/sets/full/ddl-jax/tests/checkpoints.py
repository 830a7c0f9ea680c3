"""Run by ddlrun: Orbax's checkpoint of an array that is spread over the ranks.

Usage: checkpoints.py save|restore FOLDER; each rank restores its share of the rows and checks it.
"""

import sys

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

jax.distributed.initialize()
import orbax.checkpoint as ocp  # noqa: E402

WHOLE = np.arange(8 * 3, dtype=np.float32).reshape(8, 3)


def main() -> None:
    way, folder = sys.argv[1:]
    mesh = Mesh(jax.devices(), "i")
    spread, same = NamedSharding(mesh, P("i")), NamedSharding(mesh, P())
    with ocp.StandardCheckpointer() as checkpointer:
        if way == "save":
            rows = jax.make_array_from_callback(WHOLE.shape, spread, lambda index: WHOLE[index])
            step = jax.make_array_from_callback((), same, lambda _: np.int32(7))
            checkpointer.save(folder, {"rows": rows, "step": step})
        else:
            like = {
                "rows": jax.ShapeDtypeStruct(WHOLE.shape, np.float32, sharding=spread),
                "step": jax.ShapeDtypeStruct((), np.int32, sharding=same),
            }
            state = checkpointer.restore(folder, like)
            (shard,) = state["rows"].addressable_shards
            assert shard.data.shape == (8 // jax.process_count(), 3), shard.data.shape
            np.testing.assert_array_equal(shard.data, WHOLE[shard.index])
            assert int(state["step"]) == 7
    print(way, "done", flush=True)


if __name__ == "__main__":
    main()
