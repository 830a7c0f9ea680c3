"""Keras: callbacks, saved models, layers that synchronize, elastic state."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from horovod import keras as hvd
from horovod.tensorflow import keras as hvd_tf
from hvd_frames import Frame
from hvd_harness import RANK, RANKS, SIZE, case, close, given, refused, same
from hvd_models import BATCH, EPOCHS, STEPS, alike, alone, data, fit, model, weights


def sgd() -> keras.optimizers.Optimizer:
    return keras.optimizers.SGD(0.1, momentum=0.9)


@case
def broadcast_at_the_beginning(f: Frame) -> None:
    """Ranks begin with other weights and go on with the root's, after their first step."""
    root = SIZE - 1
    for module in (hvd, hvd_tf):
        net = model(seed=RANK)
        optimizer = module.DistributedOptimizer(keras.optimizers.Adam(0.01))
        fit(net, optimizer, callbacks=[module.callbacks.BroadcastGlobalVariablesCallback(root)])
        alike(f, weights(net), module.__name__)
        state = np.concatenate([np.float64(v).ravel() for v in net.optimizer.variables])
        alike(f, state, "the optimizer's state")


@case
def a_local_variable_is_not_broadcast(f: Frame) -> None:
    net = model(seed=RANK)
    first, last = net.layers
    callback = hvd.callbacks.BroadcastGlobalVariablesCallback(0, local_variables=first.weights)
    fit(net, hvd.DistributedOptimizer(keras.optimizers.SGD(0.0)), callbacks=[callback])
    fresh = model(seed=RANK).layers[0]
    for mine, expected in zip(first.get_weights(), fresh.get_weights(), strict=True):
        same(mine, expected)
    alike(f, np.float64(last.kernel))


@case
def metrics_are_averaged(f: Frame) -> None:
    """What a callback after it sees, and the history."""
    seen: list[float] = []
    watch = keras.callbacks.LambdaCallback(on_epoch_end=lambda _, logs: seen.append(logs["loss"]))
    own = keras.callbacks.LambdaCallback(on_epoch_end=lambda _, logs: mine.append(logs["loss"]))
    mine: list[float] = []
    average = hvd.callbacks.MetricAverageCallback()
    fit(model(), hvd.DistributedOptimizer(sgd()), callbacks=[own, average, watch])
    everyones = f.hvd.allgather_object(mine, name=f.name("losses"))
    close(np.array(seen), np.mean(everyones, 0), 1e-6)
    if SIZE > 1:
        assert mine != seen


class Rates(keras.callbacks.Callback):
    """Writes down the learning rate and the momentum of each batch."""

    def __init__(self) -> None:
        super().__init__()
        self.rates: list[float] = []
        self.momenta: list[float] = []

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.rates.append(float(self.model.optimizer.learning_rate))
        self.momenta.append(float(self.model.optimizer.momentum))


@case
def warmup_of_the_learning_rate(f: Frame) -> None:
    """From a SIZE-th of the rate to the rate itself, batch by batch."""
    rates = Rates()
    warmup = hvd.callbacks.LearningRateWarmupCallback(
        initial_lr=0.4, warmup_epochs=2, momentum_correction=False, steps_per_epoch=STEPS
    )
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.4))
    history = fit(model(), optimizer, epochs=3, callbacks=[warmup, rates])
    done = np.arange(1, 2 * STEPS + 1) / STEPS
    rising = 0.4 / SIZE * (done * (SIZE - 1) / 2 + 1)
    close(np.array(rates.rates), np.concatenate([rising, np.full(STEPS, 0.4)]), 1e-6)
    close(np.array(history.history["lr"]), np.array([rising[STEPS - 1], 0.4, 0.4]), 1e-6)


@case
def warmup_finds_the_steps_by_itself(f: Frame) -> None:
    rates = Rates()
    warmup = hvd.callbacks.LearningRateWarmupCallback(initial_lr=0.4, warmup_epochs=1)
    fit(model(), hvd.DistributedOptimizer(sgd()), callbacks=[warmup, rates])
    done = np.arange(1, STEPS + 1) / STEPS
    rising = 0.4 / SIZE * (done * (SIZE - 1) + 1)
    close(np.array(rates.rates[:STEPS]), rising, 1e-6)


@case
def schedule_of_the_learning_rate(f: Frame) -> None:
    """A stair between two epochs, by a constant and by a function."""
    for multiplier, expected in ((0.5, [0.2, 0.2, 0.1, 0.1]), (lambda e: 1.0 + e, [0.2, 0.4, 0.6])):
        rates = Rates()
        schedule = hvd.callbacks.LearningRateScheduleCallback(
            initial_lr=0.2,
            multiplier=multiplier,
            start_epoch=1 if multiplier == 0.5 else 0,
            end_epoch=3,
            momentum_correction=False,
        )
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.2))
        fit(model(), optimizer, epochs=len(expected), callbacks=[schedule, rates])
        close(np.array(rates.rates), np.repeat(expected, STEPS), 1e-6)
    refused(
        lambda: hvd.callbacks.LearningRateScheduleCallback(initial_lr=None, multiplier=1.0),
        "initial_lr",
        ValueError,
    )


@case
def that_momentum_is_not_corrected_is_said(f: Frame) -> None:
    """Keras 3 compiles the momentum into its train function: it cannot change, and one is told."""
    for asked in (True, False):
        rates = Rates()
        schedule = hvd.callbacks.LearningRateScheduleCallback(
            initial_lr=0.2, multiplier=0.5, momentum_correction=asked
        )
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.2, momentum=0.8))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            fit(model(), optimizer, callbacks=[schedule, rates])
        told = [one for one in caught if "momentum_correction=False" in str(one.message)]
        assert bool(told) == asked, [str(one.message) for one in caught]
        close(np.array(rates.momenta), np.full(2 * STEPS, 0.8))
        close(np.array(rates.rates), np.repeat([0.2, 0.1], STEPS), 1e-6)


@case
def all_callbacks_at_once(f: Frame) -> None:
    net = model(seed=RANK)
    callbacks = [
        hvd_tf.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd_tf.callbacks.MetricAverageCallback(),
        hvd_tf.callbacks.LearningRateWarmupCallback(initial_lr=0.1, warmup_epochs=1),
    ]
    inputs, outputs = data(RANK)
    optimizer = hvd_tf.DistributedOptimizer(sgd())
    words = {"callbacks": callbacks, "validation_data": (inputs, outputs)}
    history = fit(net, optimizer, **words).history
    alike(f, weights(net))
    for key in ("loss", "val_loss"):
        alike(f, np.array(history[key]), key)


def shared_folder(f: Frame) -> Path:
    """One folder for all ranks, which are on one host here."""
    made = tempfile.mkdtemp() if RANK == 0 else ""
    return Path(f.hvd.broadcast_object(made, 0, name=f.name("folder")))


@case
def a_saved_model_goes_on_training(f: Frame) -> None:
    """Its optimizer comes back distributed, with its state.

    In Keras' own format only: Keras 3.15 cannot go on with an optimizer from an .h5 file, with
    Horovod or without.
    """
    folder = shared_folder(f)
    for module in (hvd, hvd_tf):
        net = model()
        fit(net, module.DistributedOptimizer(keras.optimizers.Adam(0.01)), epochs=1)
        file = folder / f"{module.__name__}.keras"
        if RANK == 0:
            net.save(file)
        f.hvd.allreduce(tf.constant(0.0), name=f.name("saved"))
        again = module.load_model(str(file))
        assert type(again.optimizer).__name__ == "Adam"
        same(weights(again), weights(net), module.__name__)
        again.fit(*data(RANK), batch_size=BATCH, shuffle=False, verbose=0)
        alike(f, weights(again), module.__name__)
        expected = alone(lambda: keras.optimizers.Adam(0.01), epochs=EPOCHS)
        close(weights(again), expected, 2e-5, module.__name__)


@case
def a_saved_model_with_an_optimizer_of_one_s_own(f: Frame) -> None:
    class Mine(keras.optimizers.SGD):
        pass

    file = shared_folder(f) / "mine.keras"
    net = model()
    fit(net, hvd.DistributedOptimizer(Mine(0.1)), epochs=1)
    if RANK == 0:
        net.save(file)
    f.hvd.allreduce(tf.constant(0.0), name=f.name("saved"))
    again = hvd.load_model(str(file), custom_optimizers=[Mine])
    again.fit(*data(RANK), batch_size=BATCH, shuffle=False, verbose=0)
    alike(f, weights(again))
    close(weights(again), alone(lambda: keras.optimizers.SGD(0.1)), 2e-5)


@case
def batch_normalization_over_all_ranks(f: Frame) -> None:
    """Outputs, gradients and moving averages are those of the whole batch on one process."""
    whole = np.concatenate([given(rank, 6, 4, top=9) for rank in RANKS]).astype("float32")
    scale = np.concatenate([given(rank, 6, 4, salt=3) for rank in RANKS]).astype("float32")
    mine = slice(6 * RANK, 6 * RANK + 6)
    layer, plain = hvd_sync(), keras.layers.BatchNormalization()
    found = []
    for one, part in ((layer, mine), (plain, slice(None))):
        inputs = tf.constant(whole[part])
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            out = one(inputs, training=True)
            loss = tf.reduce_sum(out * scale[part])
        gradient = tape.gradient(loss, inputs)
        found.append((out.numpy(), gradient.numpy()))
    (out, gradient), (all_out, all_gradient) = found
    close(out, all_out[mine], 1e-4, "outputs")
    close(layer.moving_mean.numpy(), plain.moving_mean.numpy(), 1e-4, "moving mean")
    close(layer.moving_variance.numpy(), plain.moving_variance.numpy(), 1e-3, "moving variance")
    close(gradient, all_gradient[mine], 1e-3, "gradients")


def hvd_sync() -> Any:
    import horovod.tensorflow

    return horovod.tensorflow.SyncBatchNormalization()


@case
def batch_normalization_in_fit(f: Frame) -> None:
    net = keras.Sequential([keras.Input((7,)), hvd_sync(), keras.layers.Dense(3)])
    net.set_weights([given(9, *value.shape, salt=1) / 8 for value in net.get_weights()])
    fit(net, hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)))
    alike(f, weights(net))
    assert np.isfinite(weights(net)).all()


@case
def elastic_state_of_a_model(f: Frame) -> None:
    for module in (hvd, hvd_tf):
        net = model(seed=RANK)
        optimizer = module.DistributedOptimizer(keras.optimizers.Adam(0.01))
        optimizer.build(net.trainable_variables)
        net.compile(optimizer, "mse")
        state = module.elastic.KerasState(net, epoch=RANK, batch=7 * RANK)
        state.sync()
        assert (state.epoch, state.batch) == (0, 0)
        same(weights(net), weights(model(seed=0)), module.__name__)
        state.epoch = 3
        state.save()
        kept = weights(net)
        net.train_on_batch(*data(RANK))
        state.epoch = 4
        state.restore()
        assert state.epoch == 3
        same(weights(net), kept, module.__name__)
        alike(f, weights(net))


@case
def elastic_callbacks(f: Frame) -> None:
    """They commit the state and count its batches and epochs while `fit` runs."""
    net = model()
    optimizer = hvd_tf.DistributedOptimizer(sgd())
    optimizer.build(net.trainable_variables)
    net.compile(optimizer, "mse")
    state = hvd_tf.elastic.KerasState(net, epoch=0, batch=0)
    callbacks = [
        hvd_tf.elastic.UpdateEpochStateCallback(state),
        hvd_tf.elastic.UpdateBatchStateCallback(state),
        hvd_tf.elastic.CommitStateCallback(state),
    ]
    words = {"batch_size": BATCH, "epochs": 2, "shuffle": False, "verbose": 0}
    net.fit(*data(RANK), callbacks=callbacks, **words)
    assert (state.epoch, state.batch) == (2, 0), (state.epoch, state.batch)
    alike(f, weights(net))
