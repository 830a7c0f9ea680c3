"""Gradients of the operations, and training loops that are the user's own."""

from collections.abc import Callable

import ddl
import keras
import numpy as np
import tensorflow as tf
from ddl_tensorflow import moving, reducing
from harness import close, equal_on_all_ranks, everyone, given, same
from ranked import RANK, SIZE, case


@case
def gradients_of_reductions() -> None:
    x = given(RANK, 2 * SIZE, 3)
    weights = given(RANK, 2 * SIZE, 3)
    for op, factor in (("sum", 1), ("average", 1 / SIZE)):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(reducing.allreduce(x, op) * weights)
        close([tape.gradient(loss, x)], [everyone(2 * SIZE, 3).sum(0) * factor], 1e-6)
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(reducing.reduce_scatter(x, op) * weights[:2])
        parts = [given(rank, 2 * SIZE, 3).numpy()[:2] for rank in range(SIZE)]
        close([tape.gradient(loss, x)], [np.concatenate(parts) * factor], 1e-6)


@case
def gradients_of_movements() -> None:
    x = given(RANK, RANK + 1, 2)
    total = sum(rank + 1 for rank in range(SIZE))
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_sum(moving.allgather(x) * given(RANK, total, 2))
    begin = sum(range(RANK + 1))
    same(tape.gradient(loss, x), everyone(total, 2).sum(0)[begin : begin + RANK + 1])
    y = given(RANK, 3)
    with tf.GradientTape() as tape:
        tape.watch(y)
        loss = tf.reduce_sum(moving.broadcast(y, SIZE - 1) * given(RANK, 3))
    expected = everyone(3).sum(0) if RANK == SIZE - 1 else np.zeros(3)
    same(tape.gradient(loss, y), expected)
    z = tf.ones(SIZE)
    with tf.GradientTape() as tape:
        tape.watch(z)
        loss = tf.reduce_sum(moving.alltoall(z)[0] * float(RANK + 1))
    same(tape.gradient(loss, z), np.arange(1, SIZE + 1))


@case
def gradients_of_whole_numbers_there_are_none() -> None:
    """Those beside them have theirs."""
    x, whole = given(RANK, 3), given(RANK, 2, dtype=tf.int32)
    run: Callable[[tf.Tensor], tf.Tensor]
    for operation in (
        lambda x: reducing.allreduce_n([whole, x], average=False, name="mixed"),
        lambda x: moving.broadcast_n([whole, x], name="mixed"),
    ):

        def run(x: tf.Tensor, operation: Callable[..., list[tf.Tensor]] = operation) -> tf.Tensor:
            with tf.GradientTape() as tape:
                tape.watch(x)
                loss = tf.reduce_sum(operation(x)[1] ** 2)
            return tape.gradient(loss, x)

        same(tf.function(run)(x), run(x))
    same(run(x), 2.0 * SIZE * given(0, 3) if RANK == 0 else np.zeros(3))


@case
def gradients_in_a_graph() -> None:
    @tf.function
    def run(x: tf.Tensor) -> tf.Tensor:
        return tf.gradients(tf.reduce_sum(reducing.allreduce(x, name="f") ** 2), x)[0]

    same(run(given(RANK, 4)), 2.0 * SIZE * everyone(4).sum(0))


@case
def a_training_loop_with_plain_tensorflow() -> None:
    """The gradients are the user's to reduce."""
    x, y = everyone(8, 3), everyone(8, 1)

    def train(inputs: np.ndarray, targets: np.ndarray, is_shared: bool) -> np.ndarray:
        w = tf.Variable(tf.ones((3, 1), tf.float64))
        for _ in range(4):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((inputs @ w - targets) ** 2)
            pairs = [(tape.gradient(loss, w), w)]
            for grad, variable in ddl.grads_reduce(pairs) if is_shared else pairs:
                variable.assign_sub(0.01 * grad)
        return w.numpy()

    ours = train(x[RANK], y[RANK], True)
    close([ours], [train(x.reshape(-1, 3), y.reshape(-1, 1), False)], 1e-12)
    equal_on_all_ranks([ours])


@case
def a_training_loop_with_a_keras_optimizer() -> None:
    """It averages by itself; gradients that were averaged before stay what they are."""

    def stepper(w: keras.Variable, reduce_first: bool) -> Callable[[], None]:
        optimizer = keras.optimizers.SGD(1.0)

        @tf.function
        def step() -> None:
            pairs = [(given(RANK, 3), w)]
            optimizer.apply_gradients(ddl.grads_reduce(pairs) if reduce_first else pairs)

        return step

    for reduce_first in (False, True):
        w = keras.Variable(np.ones(3, "float32"))
        stepper(w, reduce_first)()
        close([w.numpy()], [1 - everyone(3).sum(0) / SIZE], 1e-6)
