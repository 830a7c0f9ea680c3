"""Run by ddlrun: `keras.distribution` on JAX, whose collectives are ddl's.

Usage: keras_meshes.py data|model; rank 0 prints the norm of each weight.
"""

import sys
from typing import Any

import jax

jax.distributed.initialize()
import keras  # noqa: E402
import numpy as np  # noqa: E402
from ddl_jax import collectives  # noqa: E402

RANK, SIZE = jax.process_index(), jax.process_count()


def distribution(kind: str) -> Any:
    devices = keras.distribution.list_devices()
    if kind == "data":
        return keras.distribution.DataParallel(devices=devices, auto_shard_dataset=False)
    halves = 2 if SIZE > 1 else 1
    mesh = keras.distribution.DeviceMesh((SIZE // halves, halves), ["batch", "model"], devices)
    layout = keras.distribution.LayoutMap(mesh)
    layout[".*wide/kernel"] = (None, "model")
    layout[".*wide/bias"] = ("model",)
    layout[".*last/kernel"] = ("model", None)
    return keras.distribution.ModelParallel(
        layout_map=layout, batch_dim_name="batch", auto_shard_dataset=False
    )


def batches(kind: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """This rank's part of each batch: its rows, or those of its half of the mesh."""
    generator = np.random.default_rng(4)
    x = generator.normal(size=(5, 8, 6)).astype("float32")
    y = generator.normal(size=(5, 8, 3)).astype("float32")
    parts = SIZE if kind == "data" else max(SIZE // 2, 1)
    mine = RANK if kind == "data" else RANK // (2 if SIZE > 1 else 1)
    rows = slice(8 * mine // parts, 8 * (mine + 1) // parts)
    return [(a[rows], b[rows]) for a, b in zip(x, y, strict=True)]


def main() -> None:
    kind = sys.argv[1]
    keras.distribution.set_distribution(distribution(kind))
    keras.utils.set_random_seed(3)
    model = keras.Sequential(
        [
            keras.Input((6,)),
            keras.layers.Dense(8, "tanh", name="wide"),
            keras.layers.Dense(3, name="last"),
        ]
    )
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "mse")
    for x, y in batches(kind):
        model.train_on_batch(x, y)
    norms = [float(jax.numpy.linalg.norm(v.value)) for v in model.trainable_variables]
    if RANK == 0:
        print("norms", *(f"{norm:.5f}" for norm in norms))
    print("by ddl", collectives() > 0)


if __name__ == "__main__":
    main()
