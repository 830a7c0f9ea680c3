"""Trains for ever; at its fourth step the last rank does what it was told to.

Usage: hvd_life.py torch|tensorflow|keras FAULT, with FAULT one of
  dies: it kills itself; raises: it raises KeyError; leaves: it exits with 0; stalls: it sleeps;
  nothing: all ranks end well after ten steps.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

STEPS = 10


def act(hvd: Any, fault: str, step: int) -> None:
    """What happens to the last rank before its fourth step."""
    if step == 0:
        print(f"rank {hvd.rank()} of {hvd.size()} begins", flush=True)
    if step != 3 or hvd.rank() != hvd.size() - 1:
        return
    if fault == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault == "raises":
        raise KeyError("the fault of this test")
    elif fault == "leaves":
        sys.exit(0)
    elif fault == "stalls":
        time.sleep(600)


def train_torch(hvd: Any, before_step: Callable[[int], None]) -> None:
    import torch

    net = torch.nn.Linear(3, 2)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(net.parameters(), lr=0.1), net.named_parameters()
    )
    for step in range(STEPS):
        before_step(step)
        optimizer.zero_grad()
        net(torch.ones(4, 3)).sum().backward()
        optimizer.step()


def train_tensorflow(hvd: Any, before_step: Callable[[int], None]) -> None:
    import tensorflow as tf

    weight = tf.Variable([[1.0], [2.0]])

    @tf.function
    def one_step() -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(tf.ones([3, 2]) @ weight))
        (gradient,) = hvd.DistributedGradientTape(tape).gradient(loss, [weight])
        weight.assign_sub(0.01 * gradient)

    for step in range(STEPS):
        before_step(step)
        one_step()


def train_keras(hvd: Any, before_step: Callable[[int], None]) -> None:
    import keras
    import numpy as np

    net = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    net.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
    watch = keras.callbacks.LambdaCallback(
        on_train_batch_begin=lambda batch, logs: before_step(batch)
    )
    words = {"batch_size": 4, "verbose": 0, "callbacks": [watch]}
    net.fit(np.ones((4 * STEPS, 3)), np.ones((4 * STEPS, 2)), **words)


TRAIN = {"torch": train_torch, "tensorflow": train_tensorflow, "keras": train_keras}


def main() -> None:
    framework, fault = sys.argv[1:]
    hvd = importlib.import_module(f"horovod.{framework}")
    hvd.init()
    TRAIN[framework](hvd, lambda step: act(hvd, fault, step))
    print(f"rank {hvd.rank()} has trained", flush=True)


if __name__ == "__main__":
    main()
