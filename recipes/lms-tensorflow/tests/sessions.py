"""A program of TensorFlow 1 under IBM's LMS gives the bits that it gives without."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import cpus  # noqa: F401
import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from tensorflow_large_model_support import LMS, LMSSessionRunHook

tf.disable_v2_behavior()

ROWS, WIDTH = 64, 1024
data = np.random.default_rng(1).random((ROWS, WIDTH), dtype=np.float32)
x = tf.placeholder(tf.float32, (None, WIDTH))
weight = tf.get_variable("weight", (WIDTH,), initializer=tf.ones_initializer())
y = x * weight
for _ in range(32):
    y = tf.sin(y) + y
loss = tf.reduce_mean(y)
with tf.name_scope("sgd"):
    step = tf.train.GradientDescentOptimizer(0.1).minimize(loss)


def train(hooks: Sequence[Any] = ()) -> tuple[list[float], bytes]:
    with tf.train.MonitoredSession(hooks=hooks) as session:
        losses = [session.run((loss, step), {x: data})[0] for _ in range(3)]
        return losses, session.run(weight).tobytes()


plain = train()
way = sys.argv[1]
make = LMSSessionRunHook if way == "hook" else LMS
lms = make({"sgd"}, gpu_device="/cpu:0", cpu_device="/cpu:1")
lms.batch_size = ROWS
lms.autotune_gpu_mem = (0.25 if way == "too small" else 8) / 1024  # GiB
if way == "hook":
    assert train([lms]) == plain
else:
    lms.run(graph=tf.get_default_graph())
    if way == "too small":
        with pytest.raises(tf.errors.OpError, match=r"the limit of 256.0 KiB cannot be kept"):
            train()
    else:
        assert train() == plain
    lms.close()
if way != "too small":
    plan = max(lms.plans, key=lambda plan: plan.peak_before)
    assert plan.swaps
    assert plan.peak_after <= 8 << 20 < plan.peak_before
print("all well")
