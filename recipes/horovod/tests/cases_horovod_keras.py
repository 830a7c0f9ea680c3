"""Keras: `fit` with a DistributedOptimizer on parts equals one process that has all the data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
import tf_keras
from horovod import keras as hvd
from horovod.tensorflow import keras as hvd_tf
from hvd_frames import Frame
from hvd_harness import RANK, RANKS, SIZE, case, close, everyone, given, refused, rows, same
from hvd_models import BATCH, alike, alone, as_alone, data, fit, model, weights


def sgd() -> keras.optimizers.Optimizer:
    return keras.optimizers.SGD(0.1, momentum=0.9)


OPTIMIZERS = {
    "SGD": sgd,
    "Adam": lambda: keras.optimizers.Adam(0.01),
    "RMSprop": lambda: keras.optimizers.RMSprop(0.01, momentum=0.5),
    "AdamW": lambda: keras.optimizers.AdamW(0.01, weight_decay=0.1),
}


@case
def fit_equals_one_process(f: Frame) -> None:
    for name, make in OPTIMIZERS.items():
        net = model()
        fit(net, hvd.DistributedOptimizer(make()))
        as_alone(f, net, make, name)


@case
def fit_eagerly(f: Frame) -> None:
    net = model()
    fit(net, hvd_tf.DistributedOptimizer(sgd()), run_eagerly=True)
    as_alone(f, net, sgd)


@case
def fit_with_the_options_of_the_optimizer(f: Frame) -> None:
    for options in (
        {"groups": 1},
        {"groups": 3},
        {"gradient_predivide_factor": 2.0},
    ):
        net = model()
        fit(net, hvd.DistributedOptimizer(sgd(), **options))
        as_alone(f, net, sgd, options)
    net = model()
    fit(net, hvd.DistributedOptimizer(sgd(), compression=hvd.Compression.fp16))
    alike(f, weights(net))
    close(weights(net), alone(sgd), 5e-3)


@case
def sums_instead_of_averages(f: Frame) -> None:
    net = model()
    slower = keras.optimizers.SGD(0.1 / SIZE)
    fit(net, hvd.DistributedOptimizer(slower, op=hvd.Sum))
    as_alone(f, net, lambda: keras.optimizers.SGD(0.1))
    for op in (f.hvd.Min, f.hvd.Adasum):
        refused(lambda op=op: hvd.DistributedOptimizer(sgd(), op=op), "only supports", ValueError)


@case
def gradients_are_clipped_after_they_are_averaged(f: Frame) -> None:
    for words in ({"clipnorm": 0.1}, {"clipvalue": 0.05}, {"global_clipnorm": 0.1}):

        def make(words: dict[str, float] = words) -> Any:
            return keras.optimizers.SGD(0.1, **words)

        net = model()
        fit(net, hvd.DistributedOptimizer(make()))
        as_alone(f, net, make, words)


@case
def the_optimizer_keeps_its_class_and_its_settings(f: Frame) -> None:
    plain = keras.optimizers.SGD(0.3, momentum=0.7, nesterov=True, weight_decay=0.01)
    wrapped = hvd.DistributedOptimizer(plain)
    assert isinstance(wrapped, keras.optimizers.SGD)
    assert type(wrapped).__name__ == "SGD"
    assert wrapped.get_config() == plain.get_config() | {"name": wrapped.get_config()["name"]}


@case
def a_loop_of_one_s_own(f: Frame) -> None:
    """apply_gradients, eagerly and in a tf.function, without Keras' trainer."""
    for graph in (False, True):
        net, reference = model(), model()
        optimizer, plain = hvd.DistributedOptimizer(sgd()), sgd()
        optimizer.build(net.trainable_variables)
        plain.build(reference.trainable_variables)

        def step(inputs: Any, net: Any = net, optimizer: Any = optimizer) -> None:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(net(inputs)))
            gradients = tape.gradient(loss, net.trainable_variables)
            optimizer.apply_gradients(zip(gradients, net.trainable_variables, strict=True))

        run = tf.function(step) if graph else step
        for i in range(3):
            parts = [data(rank)[0][BATCH * i : BATCH * i + BATCH] for rank in RANKS]
            run(tf.constant(parts[RANK]))
            step(tf.constant(np.concatenate(parts)), reference, plain)
        alike(f, weights(net), graph)
        close(weights(net), weights(reference), 1e-5, graph)


@case
def train_on_batch(f: Frame) -> None:
    net, reference = model(), model()
    net.compile(hvd.DistributedOptimizer(sgd()), "mse")
    reference.compile(sgd(), "mse")
    for step in range(3):
        part = slice(BATCH * step, BATCH * step + BATCH)
        net.train_on_batch(*(array[part] for array in data(RANK)))
        whole = [np.concatenate([data(rank)[i][part] for rank in RANKS]) for i in (0, 1)]
        reference.train_on_batch(*whole)
    alike(f, weights(net))
    close(weights(net), weights(reference), 1e-5)


@case
def several_batches_for_a_step(f: Frame) -> None:
    """Gradients of two batches are added, or averaged, before the ranks' are averaged."""
    for average in (False, True):
        net, reference = model(), model()
        optimizer = hvd_tf.DistributedOptimizer(
            keras.optimizers.SGD(0.1),
            backward_passes_per_step=2,
            average_aggregated_gradients=average,
        )
        net.compile(optimizer, "mse")
        reference.compile(keras.optimizers.SGD(0.1 if average else 0.2), "mse")
        inputs, outputs = data(RANK)
        for turn in range(4):
            part = slice(BATCH * (turn % 3), BATCH * (turn % 3) + BATCH)
            before = weights(net)
            net.train_on_batch(inputs[part], outputs[part])
            assert (weights(net) == before).all() == (turn % 2 == 0), (average, turn)
        for step in range(2):
            parts = [BATCH * (turn % 3) for turn in (2 * step, 2 * step + 1)]
            whole = [
                np.concatenate([data(rank)[i][p : p + BATCH] for p in parts for rank in RANKS])
                for i in (0, 1)
            ]
            reference.train_on_batch(*whole)
        alike(f, weights(net), average)
        close(weights(net), weights(reference), 2e-5, average)


@case
def keras_own_gradient_accumulation(f: Frame) -> None:
    def make() -> Any:
        return keras.optimizers.SGD(0.1, gradient_accumulation_steps=2)

    net = model()
    fit(net, hvd.DistributedOptimizer(make()))
    as_alone(f, net, make)


@case
def mixed_precision(f: Frame) -> None:
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        net = model(dtype="mixed_float16")
        before = weights(net)
        fit(net, hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)))
        alike(f, weights(net))
        assert np.isfinite(weights(net)).all()
        assert not np.array_equal(weights(net), before)
    finally:
        keras.mixed_precision.set_global_policy("float32")
    close(weights(net), alone(lambda: keras.optimizers.SGD(0.1)), 2e-2)


@case
def an_overflow_on_one_rank_skips_the_step_on_all(f: Frame) -> None:
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        net = model(dtype="mixed_float16")
        net.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
        inputs, outputs = data(RANK)
        net.train_on_batch(inputs, outputs)
        before = weights(net)
        wild = np.float32(3e38) if RANK == SIZE - 1 else np.float32(1)
        net.train_on_batch(inputs, outputs * wild)
        same(weights(net), before, "the step was not skipped")
        net.train_on_batch(inputs, outputs)
        alike(f, weights(net))
        assert np.isfinite(weights(net)).all()
        assert not np.array_equal(weights(net), before)
    finally:
        keras.mixed_precision.set_global_policy("float32")


@case
def sparse_gradients_of_an_embedding(f: Frame) -> None:
    def embedded() -> keras.Model:
        keras.utils.set_random_seed(3)
        return keras.Sequential(
            [keras.Input((3,)), keras.layers.Embedding(10, 4), keras.layers.Flatten()]
        )

    words = np.array([[[r % 10, (r + i) % 10, 9] for i in range(4)] for r in RANKS])
    goal = np.zeros((4, 12), "float32")
    for as_dense in (False, True):
        net, reference = embedded(), embedded()
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.5), sparse_as_dense=as_dense)
        net.compile(optimizer, "mse")
        reference.compile(keras.optimizers.SGD(0.5), "mse")
        for _ in range(2):
            net.train_on_batch(words[RANK], goal)
            reference.train_on_batch(words.reshape(-1, 3), np.tile(goal, (SIZE, 1)))
        alike(f, weights(net), as_dense)
        close(weights(net), weights(reference), 1e-5, as_dense)


@case
def local_layers(f: Frame) -> None:
    """A layer that stays the rank's own, beside one whose gradients are averaged."""
    net = model()
    first, last = net.layers
    optimizer = hvd.PartialDistributedOptimizer(sgd(), local_layers=[first])
    fit(net, optimizer)
    found = gathered(f, [np.float64(layer.kernel) for layer in (first, last)])
    for rank in RANKS:
        same(found[rank][1], found[RANK][1], "the common layer")
        if rank != RANK:
            assert not np.array_equal(found[rank][0], found[RANK][0])


def gathered(f: Frame, thing: object) -> list[Any]:
    return f.hvd.allgather_object(thing, name=f.name("gather"))


@case
def values(f: Frame) -> None:
    """Keras' own forms of the operations take and give plain values."""
    same(np.float64(hvd.allreduce(given(RANK, 3), average=False)), everyone(3).sum(0))
    same(np.float64(hvd.allgather(given(RANK, 2))), everyone(2).ravel())
    same(np.float64(hvd.broadcast(given(RANK, 2), SIZE - 1)), given(SIZE - 1, 2))
    out = hvd.reducescatter(given(RANK, SIZE + 1), op=hvd.Sum)
    same(np.float64(out), everyone(SIZE + 1).sum(0)[rows(RANK, SIZE + 1)])


@case
def optimizers_of_a_multioptimizer(f: Frame) -> None:
    """Wrapped one by one; the whole is refused, as it leaves its work to them."""

    def make(wrap: Callable[..., Any] = lambda optimizer: optimizer) -> Any:
        each = (keras.optimizers.SGD(0.1, momentum=0.9), keras.optimizers.Adam(0.01))
        first, last = (wrap(optimizer) for optimizer in each)
        return keras.optimizers.MultiOptimizer(
            lambda variable: last if variable.path.endswith("bias") else first
        )

    refused(lambda: hvd.DistributedOptimizer(make()), "wrap the optimizers within it")
    net = model()
    fit(net, make(hvd.DistributedOptimizer))
    as_alone(f, net, make)


@case
def what_is_no_optimizer_of_this_keras_is_refused(f: Frame) -> None:
    for wrap in (hvd.DistributedOptimizer, hvd_tf.DistributedOptimizer):
        for given_one in ("adam", keras.optimizers.Adam, None):
            refused(lambda w=wrap, o=given_one: w(o), "give one, as keras.optimizers.Adam()")
        refused(lambda w=wrap: w(tf_keras.optimizers.Adam()), "TF_USE_LEGACY_KERAS=1")


@case
def an_optimizer_that_goes_past_the_reduction_is_refused(f: Frame) -> None:
    class Alone(keras.optimizers.SGD):
        def apply(self, grads: Any, trainable_variables: Any = None) -> None:
            for gradient, variable in zip(grads, trainable_variables, strict=True):
                variable.assign_sub(0.1 * gradient)

    variable = keras.Variable([1.0, 2.0])
    optimizer = hvd.DistributedOptimizer(Alone(0.1))
    refused(lambda: optimizer.apply([tf.ones(2)], [variable]), "could not reduce", RuntimeError)


@case
def variables_without_weight_decay_stay_so(f: Frame) -> None:
    def make() -> Any:
        optimizer = keras.optimizers.AdamW(0.01, weight_decay=0.5)
        optimizer.exclude_from_weight_decay(var_names=["bias"])
        return optimizer

    net = model()
    fit(net, hvd.DistributedOptimizer(make()))
    as_alone(f, net, make)


@case
def learning_rates_of_the_program_s_own(f: Frame) -> None:
    class Falling(keras.optimizers.schedules.LearningRateSchedule):
        """Without get_config(): it cannot be serialized."""

        def __call__(self, step: Any) -> Any:
            return 0.2 / (1.0 + keras.ops.cast(step, "float32"))

    for rate in (Falling(), lambda: 0.05, keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5)):
        net = model()
        fit(net, hvd.DistributedOptimizer(keras.optimizers.SGD(rate)))
        as_alone(f, net, lambda rate=rate: keras.optimizers.SGD(rate), rate)


@case
def variables_of_one_name_keep_their_own_state(f: Frame) -> None:
    variables = [keras.Variable([1.0, 2.0], name="same") for _ in range(2)]
    plain = keras.optimizers.SGD(0.1, momentum=0.9)
    plain.apply([tf.constant([1.0, 1.0]), tf.constant([5.0, 5.0])], variables)
    for passes in (1, 2):
        wrapped = hvd_tf.DistributedOptimizer(plain, backward_passes_per_step=passes)
        for mine, theirs in zip(wrapped.momentums, plain.momentums, strict=True):
            same(np.float64(mine), np.float64(theirs), passes)


@case
def an_overflow_of_a_local_layer_skips_the_step_on_all(f: Frame) -> None:
    net = model()
    first, _ = net.layers
    optimizer = keras.optimizers.LossScaleOptimizer(
        hvd.PartialDistributedOptimizer(keras.optimizers.SGD(0.1), local_layers=[first])
    )
    variables = net.trainable_variables
    optimizer.build(variables)
    before = weights(net)
    for is_wild in (True, False):
        wild = np.nan if is_wild and RANK == SIZE - 1 else 1.0
        own = {id(variable) for variable in first.trainable_variables}
        factors = [wild if id(variable) in own else 1.0 for variable in variables]
        optimizer.apply(
            [tf.fill(v.shape, np.float32(k)) for v, k in zip(variables, factors, strict=True)],
            variables,
        )
        assert np.array_equal(weights(net), before) == is_wild
        scales = gathered(f, float(optimizer.dynamic_scale))
        assert len(set(scales)) == 1, scales
