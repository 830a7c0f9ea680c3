"""A small network of Keras, trained on any backend by all ranks and by one process."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import ddl
import keras
import numpy as np
from ddl_tensorflow import optimizers
from ranked import RANK, SIZE

BATCH, STEPS = 4, 6  # of each rank


def net(seed: int = 5) -> keras.Model:
    keras.utils.set_random_seed(seed)
    return keras.Sequential(
        [keras.Input((5,)), keras.layers.Dense(7, "tanh"), keras.layers.Dense(3)]
    )


def data() -> tuple[np.ndarray, np.ndarray]:
    """Of shapes (steps, ranks, batch, 5) and (steps, ranks, batch)."""
    generator = np.random.default_rng(8)
    shape = (STEPS, SIZE, BATCH)
    return generator.normal(size=(*shape, 5)).astype("float32"), generator.integers(0, 3, shape)


def compiled(model: keras.Model, optimizer: Any, **options: Any) -> keras.Model:
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=optimizer, loss=loss, metrics=["accuracy"], **options)
    return model


def fit(model: keras.Model, epochs: int = 2, **options: Any) -> keras.callbacks.History:
    """This rank's share of every batch."""
    x, y = data()
    words = {"batch_size": BATCH, "epochs": epochs, "shuffle": False, "verbose": 0} | options
    return model.fit(x[:, RANK].reshape(-1, 5), y[:, RANK].ravel(), **words)


def alone(optimizer: keras.Optimizer, epochs: int = 2) -> keras.Model:
    """One process with all of the data, and without ddl."""
    model = compiled(net(), optimizer)
    x, y = data()
    before, optimizers.KIND.always = optimizers.KIND.always, False
    try:
        words = {"batch_size": BATCH * SIZE, "epochs": epochs, "shuffle": False, "verbose": 0}
        model.fit(x.reshape(-1, 5), y.ravel(), **words)
    finally:
        optimizers.KIND.always = before
    return model


def alike(arrays: Iterable[Any]) -> None:
    """Bit by bit the same on all ranks."""
    for array in arrays:
        mine = np.ascontiguousarray(array)
        np.testing.assert_array_equal(mine, ddl.broadcast(mine.copy()))


def close(ours: Iterable[Any], theirs: Iterable[Any], tolerance: float = 1e-4) -> None:
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, tolerance, tolerance)


def check(make: Callable[[], Any], **options: Any) -> None:
    """All ranks together come to one process's numbers."""
    model = compiled(net(), make(), **options)
    fit(model)
    alike(model.get_weights())
    close(model.get_weights(), alone(make()).get_weights())
