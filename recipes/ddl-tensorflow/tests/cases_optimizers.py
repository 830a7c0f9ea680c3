"""What optimizers do besides: clipping, accumulation, loss scaling, averages of weights."""

import ddl
import keras
import numpy as np
import tensorflow as tf
from harness import close, equal_on_all_ranks, everyone, given
from ranked import RANK, SIZE, case
from training import alone, check, compiled, fit, net


@case
def gradients_are_averaged_before_they_are_clipped() -> None:
    check(lambda: keras.optimizers.SGD(0.3, clipnorm=0.05))
    check(lambda: keras.optimizers.SGD(0.3, global_clipnorm=0.05))
    check(lambda: keras.optimizers.SGD(0.3, clipvalue=0.01))


@case
def averages_of_weights() -> None:
    check(lambda: keras.optimizers.Adam(0.01, use_ema=True, ema_overwrite_frequency=2))


@case
def exclusions_from_weight_decay_stay() -> None:
    def make() -> keras.Optimizer:
        optimizer = keras.optimizers.AdamW(0.01, weight_decay=0.3)
        optimizer.exclude_from_weight_decay(var_names=["bias"])
        return optimizer

    check(make)
    check(lambda: ddl.DistributedOptimizer(make()))


@case
def accumulated_gradients_are_averaged_once_for_each_update() -> None:
    check(lambda: keras.optimizers.SGD(0.3, gradient_accumulation_steps=3))
    if SIZE == 1:
        return
    w = keras.Variable(np.zeros(3, "float32"))
    optimizer = keras.optimizers.SGD(1.0, gradient_accumulation_steps=4)
    apply = tf.function(lambda: optimizer.apply_gradients([(given(RANK, 3), w)]))
    for step in range(8):
        apply()
        expected = -everyone(3).sum(0) / SIZE * ((step + 1) // 4)
        close([w.numpy()], [expected], 1e-6)
    graph = apply.get_concrete_function().graph
    at_top = [one.type for one in graph.get_operations()]
    assert "DdlAllreduce" not in at_top, "is inside the condition"


@case
def loss_scaling_skips_steps_on_all_ranks_together() -> None:
    w = keras.Variable(np.ones(3, "float32"))
    optimizer = keras.optimizers.LossScaleOptimizer(
        keras.optimizers.SGD(1.0), initial_scale=8.0, dynamic_growth_steps=100
    )
    apply = tf.function(lambda grad: optimizer.apply_gradients([(grad, w)]))
    apply(8.0 * given(RANK, 3))
    expected = 1 - everyone(3).sum(0) / SIZE
    close([w.numpy()], [expected], 1e-6)
    infinite = tf.constant([1.0, np.inf if RANK == SIZE - 1 else 1.0, 1.0])
    apply(infinite)
    close([w.numpy()], [expected], 1e-6)
    assert float(optimizer.dynamic_scale) == 4.0
    assert int(optimizer.iterations) == 1


@case
def mixed_precision() -> None:
    for policy in ("mixed_float16", "mixed_bfloat16"):
        keras.config.set_dtype_policy(policy)
        try:
            model = compiled(net(seed=RANK), keras.optimizers.SGD(0.1))
        finally:
            keras.config.set_dtype_policy("float32")
        is_scaled = isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
        assert is_scaled is (policy == "mixed_float16")
        if is_scaled:
            model.optimizer.initial_scale = 256.0  # the default's first steps are all skipped
        fit(model, epochs=4)
        equal_on_all_ranks(model.get_weights())
        begin, exact = net(seed=0), compiled(net(seed=0), keras.optimizers.SGD(0.1))
        fit(exact, epochs=4)
        close(model.get_weights(), exact.get_weights(), 0.05)
        moved = np.abs(model.get_weights()[0] - begin.get_weights()[0]).max()
        assert moved > 0.05, moved


@case
def every_optimizer_of_keras() -> None:
    names = "SGD RMSprop Adam AdamW Adadelta Adagrad Adamax Nadam Ftrl Lion Adafactor Lamb"
    for name in names.split():
        model = compiled(net(), getattr(keras.optimizers, name)())
        fit(model, epochs=1)
        equal_on_all_ranks(model.get_weights())


@case
def two_optimizers_in_one_step() -> None:
    a, b = keras.Variable(np.ones(2, "float32")), keras.Variable(np.ones(3, "float32"))
    one, two = keras.optimizers.SGD(1.0), keras.optimizers.SGD(1.0)

    @tf.function
    def step() -> None:
        one.apply_gradients([(given(RANK, 2), a)])
        two.apply_gradients([(given(RANK, 3), b)])

    for _ in range(3):
        step()
    close([a.numpy()], [1 - 3 * everyone(2).sum(0) / SIZE])
    close([b.numpy()], [1 - 3 * everyone(3).sum(0) / SIZE])


@case
def a_wrapped_optimizer_has_its_configuration() -> None:
    adam = keras.optimizers.Adam(0.02, beta_1=0.7)
    assert ddl.DistributedOptimizer(adam) is adam
    assert ddl.wrap(adam) is adam
    again = keras.optimizers.deserialize(keras.optimizers.serialize(adam))
    assert type(again) is keras.optimizers.Adam
    assert again.get_config() == adam.get_config()


@case
def names_that_keras_has_numbered_differently() -> None:
    """Rank 0 made and built a model of its own before: its next names have other numbers."""
    if RANK == 0:
        other = compiled(net(), "adam")
        other.optimizer.build(other.trainable_variables)
    model = compiled(net(seed=RANK), "adam")
    fit(model)
    equal_on_all_ranks(model.get_weights())
    accumulating = compiled(net(seed=RANK), keras.optimizers.Adam(gradient_accumulation_steps=2))
    fit(accumulating)
    equal_on_all_ranks(accumulating.get_weights())


@case
def several_optimizers_for_one_model() -> None:
    """Also where MultiOptimizer alone has been wrapped."""
    from ddl_tensorflow import optimizers

    def make(wrapped: bool) -> keras.Optimizer:
        by_name = {".*bias": keras.optimizers.SGD(0.3)}
        inner = keras.optimizers.OptimizerMap(keras.optimizers.Adam(0.01), by_name)
        optimizer = keras.optimizers.MultiOptimizer(inner)
        return ddl.DistributedOptimizer(optimizer) if wrapped else optimizer

    check(lambda: make(wrapped=False))
    exact = alone(make(wrapped=False))
    before, optimizers.KIND.always = optimizers.KIND.always, False
    try:
        model = compiled(net(), make(wrapped=True))
        fit(model)
    finally:
        optimizers.KIND.always = before
    equal_on_all_ranks(model.get_weights())
    close(model.get_weights(), exact.get_weights(), 1e-4)
