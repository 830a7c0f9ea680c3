"""Functions whose kernels take memory beside their results; prints what passes its limit.

A program of its own: TensorFlow traces the memory of the allocator that comes with oneDNN, which
the other tests go without. The limit is the least that LMS says it can keep.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import cpus  # noqa: F401
import lms_tensorflow
import tensorflow as tf
from test_order import _peak
from traces import Profile

DEVICES = {"device": "CPU:0", "host": "CPU:1"}


def product(seed: tf.Tensor) -> tf.Tensor:
    x = tf.random.stateless_uniform((16, 256, 8, 32), seed)
    return tf.reduce_sum(tf.einsum("bqhd,bkhd->bhqk", x, x))


def moments(seed: tf.Tensor) -> tf.Tensor:
    x = tf.random.stateless_uniform((16, 64, 64, 4, 4), seed)
    return tf.reduce_sum(tf.reduce_mean(tf.square(x), (1, 2, 4)))


def pooled(seed: tf.Tensor) -> tf.Tensor:
    x = tf.random.stateless_uniform((16, 64, 64, 16), seed)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.sin(tf.nn.max_pool2d(x, 2, 2, "VALID"))
    return tf.reduce_sum(tape.gradient(y, x))


def main() -> None:
    seed = tf.constant([1, 2])
    for step in (product, moments, pooled):
        least = lms_tensorflow.function(
            step, serialization_by_size=1, swapout_threshold=1 << 30, **DEVICES
        )
        least(seed)
        need = max(plan.peak_after for plan in least.lms.plans)
        held = lms_tensorflow.function(step, limit=need, **DEVICES)
        held(seed)
        for _ in range(3):
            with tempfile.TemporaryDirectory() as folder:
                profile = Profile(Path(folder))
                profile.on_train_batch_begin(1)
                held(seed)
                profile.on_train_batch_end(1)
                peak = _peak(profile.events())
            if not 0 < peak <= need:
                print(f"{step.__name__}: {peak} bytes at once, the limit is {need}")


if __name__ == "__main__":
    main()
