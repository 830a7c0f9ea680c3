"""Models made by chance: with LMS, each loses exactly what it loses without."""

from __future__ import annotations

import json
import random
from typing import Any

import keras
import pytest
from models import BATCH, compiled, fit, lms


def made(seed: int) -> keras.Model:
    """A model with skips, branches that join, and what layers the seed picks."""
    pick = random.Random(seed)
    width = pick.choice([8, 12])
    given = keras.Input((pick.choice([12, 16]), pick.choice([12, 16]), 3))
    x = keras.layers.Conv2D(width, 3, padding="same")(given)
    for _ in range(pick.randint(2, 5)):
        before = x
        for _ in range(pick.randint(1, 3)):
            x = _layer(pick, width)(x)
        match pick.randrange(4):
            case 0:
                x = x + before
            case 1:
                x = keras.layers.Conv2D(width, 1)(keras.layers.Concatenate()([x, before]))
            case 2:
                x = x * keras.ops.sigmoid(before)
    x = keras.layers.Flatten()(x) if pick.random() < 0.5 else keras.ops.mean(x, (1, 2))
    return compiled(keras.Model(given, keras.layers.Dense(7)(x)))


def _layer(pick: random.Random, width: int) -> keras.layers.Layer:
    layers = keras.layers
    return pick.choice(
        [
            lambda: layers.Conv2D(width, 3, padding="same", activation="relu"),
            lambda: layers.DepthwiseConv2D(3, padding="same", activation="tanh"),
            lambda: layers.BatchNormalization(),
            lambda: layers.LayerNormalization(),
            lambda: layers.Dropout(0.2),
            lambda: layers.Dense(width, activation="gelu"),
            lambda: layers.Activation("silu"),
        ]
    )()


def options(seed: int) -> dict[str, Any]:
    pick = random.Random(seed)
    return {
        "swapout_threshold": pick.randint(2, 30),
        "swapin_ahead": pick.randint(1, 8),
        "swapin_groupby": pick.randint(0, 20),
        "sync_mode": pick.randint(0, 3),
        "min_bytes": pick.choice([0, 1024, 16384]),
        "batch_size": BATCH,
        "serialization_by_size": pick.choice([None, 1, "256KiB"]),
    }


def check(seed: int) -> None:
    callback = lms(**options(seed))
    assert fit(lambda: made(seed), callback, epochs=1) == fit(lambda: made(seed), epochs=1)
    graphs = json.loads(callback.to_json())["graphs"]
    largest = max(graphs, key=lambda one: one["peak_bytes_before"])
    # No tensor waits for more operations than one after the other are in the graph.
    assert largest["swaps"] or largest["levels"] < largest["swapout_threshold"]


@pytest.mark.parametrize("seed", range(4))
def test_the_same(seed: int) -> None:
    check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4, 40))
def test_the_same_more(seed: int) -> None:
    check(seed)
