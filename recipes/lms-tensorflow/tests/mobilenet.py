"""Keras' MobileNetV2 with class weights and validation: prints what differs with LMS and without.

A program of its own: operations are made deterministic for the whole process.
"""

from __future__ import annotations

from typing import Any

import cpus  # noqa: F401
import keras
import numpy as np
import tensorflow as tf
from models import lms

ROWS = 8


def fit(callbacks: list[Any]) -> list[Any]:
    """Losses, and the weights after them."""
    keras.utils.set_random_seed(3)
    model = keras.applications.MobileNetV2(weights=None, input_shape=(32, 32, 3), classes=10)
    model.compile("sgd", "sparse_categorical_crossentropy", jit_compile=False)
    rng = np.random.default_rng(0)
    x = rng.random((3 * ROWS, 32, 32, 3), dtype=np.float32)
    y = rng.integers(0, 10, len(x))
    history = model.fit(
        x,
        y,
        batch_size=ROWS,
        verbose=0,
        callbacks=callbacks,
        class_weight={i: 1 + i / 10 for i in range(10)},
        validation_data=(x[:12], y[:12]),
    )
    return [history.history, *(weights.tobytes() for weights in model.get_weights())]


def main() -> None:
    tf.config.experimental.enable_op_determinism()
    without = fit([])
    free = lms(limit="1TiB", batch_size=ROWS)
    found = {"1TiB": fit([free])}
    peak = max(plan.peak_before for plan in free.plans)
    for share in (0.8, 0.9):
        callback = lms(limit=int(share * peak), batch_size=ROWS)
        found[f"{share} of the peak"] = fit([callback])
        assert any(plan.swaps for plan in callback.plans)
    for limit, history in found.items():
        apart = sum(one != other for one, other in zip(history, without, strict=True))
        if apart:
            print(f"with a limit of {limit}, {apart} of {len(history)} differ")


if __name__ == "__main__":
    main()
