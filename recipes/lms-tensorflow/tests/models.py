"""Small models, and fits of them with and without LMS."""

from __future__ import annotations

import functools
from typing import Any

import keras
import numpy as np
from lms_tensorflow import LMS

BATCH = 16
MIB = 1 << 20


def lms(**options: Any) -> LMS:
    return LMS(device="CPU:0", host="CPU:1", **options)


def convolutions() -> keras.Model:
    """With layers that keep several tensors for the way back."""
    given = keras.Input((32, 32, 3))
    x = given
    for filters in (16, 16, 32, 32):
        x = keras.layers.Conv2D(filters, 3, padding="same")(x)
        x = keras.layers.BatchNormalization()(x)
        x = keras.layers.Activation("relu")(x)
        x = keras.layers.Dropout(0.1)(x)
    x = keras.layers.GlobalAveragePooling2D()(x)
    return compiled(keras.Model(given, keras.layers.Dense(10)(x)))


def attention() -> keras.Model:
    """A small transformer: shapes that hang on the batch through reshapes and einsums."""
    given = keras.Input((48, 32))
    x = given
    for _ in range(2):
        y = keras.layers.LayerNormalization()(x)
        x = x + keras.layers.MultiHeadAttention(2, 16)(y, y)
        y = keras.layers.Dense(64, activation="gelu")(keras.layers.LayerNormalization()(x))
        x = x + keras.layers.Dense(32)(y)
    return compiled(keras.Model(given, keras.layers.Dense(10)(keras.layers.Flatten()(x))))


def inverted() -> keras.Model:
    """Blocks as MobileNetV2 has them, down to one pixel, learned by plain descent.

    The optimizer multiplies gradients that are products already: TensorFlow orders the factors.
    """
    given = keras.Input((16, 16, 3))
    x = given
    for filters in (8, 16, 32, 64):
        x = keras.layers.Conv2D(2 * filters, 1, use_bias=False)(x)
        x = keras.layers.ReLU(6.0)(keras.layers.BatchNormalization()(x))
        x = keras.layers.DepthwiseConv2D(3, strides=2, padding="same", use_bias=False)(x)
        x = keras.layers.ReLU(6.0)(keras.layers.BatchNormalization()(x))
        x = keras.layers.Conv2D(filters, 1, use_bias=False)(x)
        x = keras.layers.BatchNormalization()(x)
    x = keras.layers.GlobalAveragePooling2D()(x)
    return compiled(keras.Model(given, keras.layers.Dense(10)(x)), "sgd")


def compiled(model: keras.Model, optimizer: str = "adam", **options: Any) -> keras.Model:
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, **{"jit_compile": False, **options})
    return model


def data(model: keras.Model, batches: float = 2.5) -> tuple[np.ndarray, np.ndarray]:
    count = int(BATCH * batches)
    rng = np.random.default_rng(0)
    x = rng.random((count, *model.input_shape[1:]), dtype=np.float32)
    return x, rng.integers(0, model.output_shape[-1], count)


def fit(make: Any, callback: LMS | None = None, epochs: int = 2, **options: Any) -> list[Any]:
    """Losses of the epochs, and the weights after them."""
    keras.utils.set_random_seed(3)
    model = make()
    history = train(model, callback, epochs, **options)
    return [history.history["loss"], *(w.tobytes() for w in model.get_weights())]


@functools.cache
def needed(make: Any, batches: float = 2.5) -> int:
    """What a step takes in LMS's order, with nothing swapped.

    Where the last batch is smaller, TensorFlow knows fewer shapes, and more is taken to be needed.
    """
    callback = lms(serialization_by_size=1, swapout_threshold=1 << 30, batch_size=BATCH)
    fit(make, callback, epochs=1, batches=batches)
    return max(plan.peak_after for plan in callback.plans)


def tight(make: Any = convolutions, batches: float = 2.5) -> int:
    """A limit that asks for swaps."""
    return int(0.85 * needed(make, batches))


def train(
    model: keras.Model,
    callback: LMS | None = None,
    epochs: int = 2,
    batches: float = 2.5,
    **options: Any,
) -> keras.callbacks.History:
    x, y = data(model, batches)
    callbacks = [callback] if callback else []
    return model.fit(
        x, y, batch_size=BATCH, epochs=epochs, verbose=0, callbacks=callbacks, **options
    )
