"""Fits with oneDNN, which computes some neighbours in a graph as one: what differs is printed.

A program of its own: the other tests go without oneDNN.
"""

from __future__ import annotations

import cpus  # noqa: F401
import keras
import tensorflow as tf
from models import BATCH, compiled, convolutions, fit, inverted, lms, needed

ONE_BY_ONE = {"swapout_threshold": 4, "serialization_by_size": 1, "min_bytes": 0}
IN_STEP = {"swapout_threshold": 3, "swapin_ahead": 1, "sync_mode": 3, "min_bytes": 0}


def padded() -> keras.Model:
    """Padding that only a convolution reads, whose kernel is not learned; pooling; biases."""
    given = keras.Input((32, 32, 3))
    x = keras.layers.Conv2D(16, 3)(given)
    for _ in range(2):
        x = keras.layers.ZeroPadding2D(2)(x)
        x = keras.layers.Conv2D(16, 3, trainable=False)(x)
        x = keras.layers.Activation("silu")(x)
        x = keras.layers.MaxPooling2D()(x)
        x = keras.layers.Conv2D(16, 3, padding="same")(x) * x
    x = keras.layers.GlobalAveragePooling2D()(x)
    return compiled(keras.Model(given, keras.layers.Dense(10)(x)), "sgd")


def main() -> None:
    tf.config.experimental.enable_op_determinism()
    for make in (convolutions, padded, inverted):
        without = fit(make, epochs=1, batches=2)
        if fit(make, epochs=1, batches=2) != without:
            print(f"{make.__name__} differs from itself")
        limit = {"limit": int(0.8 * needed(make, batches=2)), "min_bytes": 1024}
        for options in (ONE_BY_ONE, IN_STEP, limit):
            callback = lms(batch_size=BATCH, **options)
            found = fit(make, callback, epochs=1, batches=2)
            apart = sum(one != other for one, other in zip(found, without, strict=True))
            if apart or not any(plan.swaps for plan in callback.plans):
                print(f"{make.__name__} with {options}: {apart} of {len(found)} differ")


if __name__ == "__main__":
    main()
