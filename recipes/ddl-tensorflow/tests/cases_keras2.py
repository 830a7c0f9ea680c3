"""tf-keras, Keras 2: `model.fit`, its optimizers and the legacy ones."""

from collections.abc import Callable
from typing import Any

import ddl
import numpy as np
import tensorflow as tf
import tf_keras as keras
from harness import close, equal_on_all_ranks, everyone, given
from ranked import RANK, SIZE, case
from training import BATCH, data

Made = Callable[[], Any]


def compiled(optimizer: Any, seed: int = 5, **options: Any) -> Any:
    keras.utils.set_random_seed(seed)
    layers = [keras.layers.Dense(7, "tanh"), keras.layers.Dense(3)]
    model = keras.Sequential([keras.Input((5,)), *layers])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=optimizer, loss=loss, metrics=["accuracy"], **options)
    return model


def fit(model: Any, epochs: int = 2, callbacks: Any = None) -> Any:
    """This rank's share of every batch."""
    x, y = data()
    return model.fit(
        x[:, RANK].reshape(-1, 5),
        y[:, RANK].ravel(),
        batch_size=BATCH,
        epochs=epochs,
        shuffle=False,
        verbose=0,
        callbacks=callbacks,
    )


def alone(optimizer: Any, epochs: int = 2) -> Any:
    """One process with all of the data, and without ddl."""
    from ddl_tensorflow import keras2

    model = compiled(optimizer)
    x, y = data()
    before, keras2.KIND.always = keras2.KIND.always, False
    try:
        model.fit(
            x.reshape(-1, 5),
            y.ravel(),
            batch_size=BATCH * SIZE,
            epochs=epochs,
            shuffle=False,
            verbose=0,
        )
    finally:
        keras2.KIND.always = before
    return model


def check(make: Made, **options: Any) -> None:
    model = compiled(make(), **options)
    fit(model)
    equal_on_all_ranks(model.get_weights())
    close(model.get_weights(), alone(make()).get_weights(), 1e-4)


@case
def keras2_fit_equals_one_process_with_the_whole_batch() -> None:
    check(lambda: keras.optimizers.SGD(0.3, momentum=0.9))
    check(lambda: keras.optimizers.Adam(0.01))
    check(lambda: keras.optimizers.legacy.SGD(0.3, momentum=0.9))
    check(lambda: keras.optimizers.legacy.Adam(0.01))


@case
def keras2_fit_in_other_ways() -> None:
    check(lambda: keras.optimizers.SGD(0.3), run_eagerly=True)
    check(lambda: keras.optimizers.SGD(0.3), steps_per_execution=3)
    check(lambda: keras.optimizers.SGD(0.3, jit_compile=False), jit_compile=True)
    check(lambda: keras.optimizers.legacy.SGD(0.3, global_clipnorm=0.05))


@case
def keras2_begins_with_rank_0s_variables() -> None:
    for callbacks in (None, [ddl.DDLCallback(), ddl.DDLGlobalVariablesCallback()]):
        for make in (keras.optimizers.Adam, keras.optimizers.legacy.Adam):
            model = compiled(make(), seed=100 + RANK)
            history = fit(model, callbacks=callbacks).history
            equal_on_all_ranks(model.get_weights())
            equal_on_all_ranks([one.numpy() for one in model.optimizer.variables()])
            if callbacks:
                equal_on_all_ranks(np.array(values) for values in history.values())
    x, y = data()
    result = model.evaluate(x[0, RANK], y[0, RANK], verbose=0, callbacks=[ddl.DDLCallback()])
    equal_on_all_ranks([np.array(result)])


@case
def keras2_loss_scaling_skips_steps_on_all_ranks_together() -> None:
    for kind in (keras.optimizers, keras.optimizers.legacy):
        w = tf.Variable(np.ones(3, "float32"))
        optimizer = keras.mixed_precision.LossScaleOptimizer(kind.SGD(1.0), initial_scale=8.0)
        optimizer._loss_has_been_scaled = optimizer._gradients_have_been_unscaled = True

        def step(grad: Any, optimizer: Any = optimizer, w: Any = w) -> None:
            optimizer.apply_gradients([(grad, w)])

        apply = tf.function(step)
        apply(given(RANK, 3))
        expected = 1 - everyone(3).sum(0) / SIZE
        close([w.numpy()], [expected], 1e-6)
        apply(tf.constant([1.0, np.inf if RANK == SIZE - 1 else 1.0, 1.0]))
        close([w.numpy()], [expected], 1e-6)


@case
def keras2_optimizers_can_be_wrapped() -> None:
    from ddl_tensorflow import keras2, optimizers

    for make in (keras.optimizers.SGD, keras.optimizers.legacy.SGD):
        one, other = make(1.0), make(1.0)
        assert ddl.DistributedOptimizer(one) is one
        before, keras2.KIND.always = keras2.KIND.always, False
        try:
            assert optimizers.is_distributed(one) is (SIZE > 1)
            assert not optimizers.is_distributed(other)
        finally:
            keras2.KIND.always = before
        assert optimizers.is_distributed(other) is (SIZE > 1)


@case
def keras2_leaves_strategies_alone() -> None:
    """Theirs are the gradients' sums and the beginning."""
    strategy = tf.distribute.OneDeviceStrategy("cpu:0")
    with strategy.scope():
        w = tf.Variable(np.zeros(3, "float32"))
        optimizer = keras.optimizers.SGD(1.0)
    strategy.run(lambda: optimizer.apply_gradients([(given(RANK, 3), w)]))
    close([w.numpy()], [-given(RANK, 3).numpy()], 0)
