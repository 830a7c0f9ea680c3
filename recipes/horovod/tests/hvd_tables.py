"""A small Keras model, the ranks' data and one process's numbers, on any backend of Keras.

A table of cases is a program that ddlrun runs: its cases stand in `CASES`, and `main` runs them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
from horovod import keras as hvd
from horovod._keras.engine import hvd as engine
from hvd_harness import RANK, RANKS, close, same

BACKEND = keras.config.backend()
BATCH, STEPS, EPOCHS = 4, 3, 2
CASES: list[Callable[[], None]] = []


def case(function: Callable[[], None]) -> Callable[[], None]:
    CASES.append(function)
    return function


def model(seed: int = 5, dtype: str = "float32") -> keras.Model:
    keras.utils.set_random_seed(seed)
    layers = [keras.layers.Dense(9, "tanh", dtype=dtype), keras.layers.Dense(3, dtype=dtype)]
    return keras.Sequential([keras.Input((7,)), *layers])


def data(rank: int) -> list[np.ndarray]:
    generator = np.random.default_rng(rank)
    return [generator.standard_normal((BATCH * STEPS, n)).astype("float32") for n in (7, 3)]


def whole_data(ranks: Any = RANKS) -> list[np.ndarray]:
    """So that a step's batch is what all ranks have in that step."""
    parts = [[np.split(array, STEPS) for array in data(rank)] for rank in ranks]
    return [
        np.concatenate([part[i][step] for step in range(STEPS) for part in parts]) for i in (0, 1)
    ]


def weights(net: keras.Model) -> np.ndarray:
    return np.concatenate([np.float64(value).ravel() for value in net.get_weights()])


def numbers(variables: Any) -> np.ndarray:
    arrays = [keras.ops.convert_to_numpy(one) for one in variables]
    return np.concatenate([np.float64(array).ravel() for array in arrays])


def fit(net: keras.Model, optimizer: Any, ranks: Any = None, **options: Any) -> Any:
    """Train on this rank's data, or on that of several; the history."""
    net.compile(optimizer, "mse", run_eagerly=options.pop("run_eagerly", False))
    inputs, outputs = data(RANK) if ranks is None else whole_data(ranks)
    size = BATCH * (1 if ranks is None else len(ranks))
    words = {"epochs": EPOCHS, "batch_size": size, "shuffle": False, "verbose": 0} | options
    return net.fit(inputs, outputs, **words)


def alike(mine: np.ndarray, what: object = "") -> None:
    for other in engine.allgather_object(mine):
        same(other, mine, f"{what}: weights of two ranks")


def as_alone(net: keras.Model, make: Callable[[], Any], tolerance: float = 2e-5) -> None:
    alike(weights(net))
    reference = model()
    fit(reference, make(), RANKS)
    close(weights(net), weights(reference), tolerance)


def sgd(**words: Any) -> Any:
    return keras.optimizers.SGD(0.1, **words)


def main() -> None:
    """Rank r writes the names of the cases that it has passed to the file r of a folder."""
    hvd.init()
    passed = []
    try:
        for function in CASES:
            function()
            passed.append(function.__name__)
    finally:
        (Path(sys.argv[1]) / str(RANK)).write_text("\n".join(passed))
