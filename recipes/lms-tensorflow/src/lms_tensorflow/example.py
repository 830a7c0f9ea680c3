"""Trains a small convolution network within a share of the memory that it asks for.

    python -m lms_tensorflow.example --share 0.6

It trains twice, without LMS and with it, compares the losses and prints the report. Without a GPU,
it swaps between two logical CPU devices.
"""

from __future__ import annotations

import argparse
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

from lms_tensorflow import LMS, LmsError

BATCH = 32


def make() -> keras.Model:
    """The model, with the same weights each time."""
    keras.utils.set_random_seed(7)
    tf.config.experimental.enable_op_determinism()
    given = keras.Input((48, 48, 3))
    x = given
    for filters in (16, 16, 32, 32):
        x = keras.layers.Conv2D(filters, 3, padding="same", activation="relu")(x)
        x = keras.layers.BatchNormalization()(x)
    x = keras.layers.GlobalAveragePooling2D()(x)
    model = keras.Model(given, keras.layers.Dense(10)(x))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, jit_compile=False)
    return model


def fit(callbacks: list[LMS]) -> list[float]:
    """The losses of two epochs."""
    rng = np.random.default_rng(0)
    x = rng.random((4 * BATCH, 48, 48, 3), dtype=np.float32)
    y = rng.integers(0, 10, len(x))
    history = make().fit(x, y, BATCH, epochs=2, verbose=0, callbacks=callbacks)
    return [float(one) for one in history.history["loss"]]


def main() -> int:
    """0 if both fits lose the same; 1 if not, or LMS cannot do it."""
    parser = argparse.ArgumentParser(prog="python -m lms_tensorflow.example", description=__doc__)
    parser.add_argument("--share", type=float, default=0.6, help="of the memory (default: 0.6)")
    share = parser.parse_args().share
    devices = {}
    if not tf.config.list_physical_devices("GPU"):
        two = [tf.config.LogicalDeviceConfiguration()] * 2
        tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], two)
        devices = {"device": "CPU:0", "host": "CPU:1"}
    try:
        without = fit([])
        unlimited = LMS(limit="1TiB", batch_size=BATCH, **devices)
        fit([unlimited])
        peak = max(plan.peak_before for plan in unlimited.plans)
        lms = LMS(limit=int(share * peak), **devices)
        within = fit([lms])
    except LmsError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(lms.report())
    print(f"losses without LMS: {without}\nlosses with it:     {within}")
    return 0 if without == within else 1


if __name__ == "__main__":
    sys.exit(main())
