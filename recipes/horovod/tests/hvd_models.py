"""A small Keras model, its data and the oracle: one process that trains on everyone's batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from horovod import tensorflow as hvd
from hvd_frames import Frame
from hvd_harness import RANK, RANKS, close, same

BATCH, STEPS, EPOCHS = 4, 3, 2


def model(seed: int = 5, dtype: str = "float32") -> keras.Model:
    keras.utils.set_random_seed(seed)
    return keras.Sequential(
        [
            keras.Input((7,)),
            keras.layers.Dense(9, activation="tanh", dtype=dtype),
            keras.layers.Dense(3, dtype=dtype),
        ]
    )


def data(rank: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(rank)
    count = BATCH * STEPS
    return (
        generator.standard_normal((count, 7)).astype("float32"),
        generator.standard_normal((count, 3)).astype("float32"),
    )


def whole_data() -> tuple[np.ndarray, np.ndarray]:
    """Everyone's, so that a step's batch is what all ranks have in that step."""
    parts = [data(rank) for rank in RANKS]
    split = [[np.split(array, STEPS) for array in part] for part in parts]
    return tuple(
        np.concatenate([split[rank][i][step] for step in range(STEPS) for rank in RANKS])
        for i in (0, 1)
    )


def weights(net: keras.Model) -> np.ndarray:
    return np.concatenate([np.float64(value).ravel() for value in net.get_weights()])


def fit(net: keras.Model, optimizer: Any, whole: bool = False, **options: Any) -> Any:
    """Train without shuffling, on this rank's data or on everyone's; the history."""
    net.compile(
        optimizer, keras.losses.MeanSquaredError(), run_eagerly=options.pop("run_eagerly", False)
    )
    inputs, outputs = whole_data() if whole else data(RANK)
    size = BATCH * (len(RANKS) if whole else 1)
    words = {"epochs": EPOCHS, "batch_size": size, "shuffle": False, "verbose": 0} | options
    return net.fit(inputs, outputs, **words)


def alone(make: Callable[[], Any], **options: Any) -> np.ndarray:
    net = model()
    fit(net, make(), whole=True, **options)
    return weights(net)


def alike(f: Frame, mine: np.ndarray, what: object = "") -> None:
    """Fails unless all ranks have the same weights, bit for bit."""
    for other in hvd.allgather_object(mine, name=f.name("weights")):
        same(other, mine, f"{what}: weights of two ranks")


def as_alone(f: Frame, net: keras.Model, make: Callable[[], Any], what: object = "") -> None:
    alike(f, weights(net), what)
    close(weights(net), alone(make), 2e-5, what)
