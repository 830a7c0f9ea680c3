"""Run by ddlrun: what Keras does with ddl on any of its backends, as KERAS_BACKEND says.

Usage: table_backends.py RESULTS; rank r writes the names of the cases that it passed to RESULTS/r.
"""

import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import ddl
import keras
import numpy as np
from branches import Branches
from ddl_tensorflow import optimizers
from ranked import RANK, SIZE, case, run_cases
from training import alike, check, close, compiled, data, fit, net

BACKEND = keras.config.backend()


def numbers(variables: Any) -> list[np.ndarray]:
    return [keras.ops.convert_to_numpy(one) for one in variables]


@case
def test_tensorflow_is_loaded_for_itself_alone() -> None:
    assert ("tensorflow" in sys.modules) is (BACKEND == "tensorflow")


@case
def test_one_rank_s_numbers() -> None:
    check(lambda: keras.optimizers.SGD(0.3, momentum=0.9))
    check(lambda: keras.optimizers.Adam(0.01))
    check(lambda: keras.optimizers.SGD(0.3), run_eagerly=True)


@case
def test_several_steps_at_once() -> None:
    if BACKEND == "torch":  # Keras itself refuses
        return
    check(lambda: keras.optimizers.SGD(0.3), steps_per_execution=3)


@case
def test_clipping_comes_after_the_average() -> None:
    check(lambda: keras.optimizers.SGD(0.3, clipnorm=0.05))
    check(lambda: keras.optimizers.SGD(0.3, global_clipnorm=0.05))
    check(lambda: keras.optimizers.SGD(0.3, clipvalue=0.01))


@case
def test_accumulated_gradients() -> None:
    check(lambda: keras.optimizers.SGD(0.3, gradient_accumulation_steps=3))


@case
def test_a_gradient_that_some_ranks_alone_have() -> None:
    """Those of the others are zero; a layer that no rank uses stays as it is."""
    if BACKEND == "tensorflow":  # refused: cases_refused.py
        return
    for make in (
        lambda: keras.optimizers.AdamW(0.01, weight_decay=0.5),
        lambda: keras.optimizers.SGD(0.3, gradient_accumulation_steps=3),
        lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.3), 8.0),
    ):
        trained = []
        for is_dense in (False, True):
            keras.utils.set_random_seed(5)
            model = compiled(Branches(5, RANK % 2, is_dense), make())
            unused = model.parts[2].get_weights()
            fit(model)
            if BACKEND == "torch":
                close(model.parts[2].get_weights(), unused, 0)
            alike(model.get_weights())
            trained.append(model.get_weights())
        close(*trained)


@case
def test_averages_of_weights() -> None:
    check(lambda: keras.optimizers.Adam(0.01, use_ema=True, ema_overwrite_frequency=2))


@case
def test_schedules() -> None:
    schedule = keras.optimizers.schedules.ExponentialDecay
    check(lambda: keras.optimizers.SGD(schedule(0.3, 2, 0.5)))


@case
def test_mixed_precision() -> None:
    for policy in ("mixed_float16", "mixed_bfloat16"):
        keras.config.set_dtype_policy(policy)
        try:
            model = compiled(net(seed=RANK), keras.optimizers.SGD(0.1))
        finally:
            keras.config.set_dtype_policy("float32")
        if policy == "mixed_float16":
            model.optimizer.initial_scale = 256.0  # the default's first steps are all skipped
        fit(model)
        alike(model.get_weights())
        exact = compiled(net(seed=0), keras.optimizers.SGD(0.1))
        fit(exact)
        close(model.get_weights(), exact.get_weights(), 0.05)


@case
def test_an_overflow_on_one_rank_skips_the_step_on_all() -> None:
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = net()
    finally:
        keras.config.set_dtype_policy("float32")
    inner = keras.optimizers.SGD(0.1)
    compiled(model, keras.optimizers.LossScaleOptimizer(inner, initial_scale=8.0))
    before = model.get_weights()
    x, y = data()
    wild = np.float32(np.inf) if RANK == SIZE - 1 else np.float32(1)
    model.train_on_batch(x[0, RANK] * wild, y[0, RANK])
    close(model.get_weights(), before, 0)
    assert float(keras.ops.convert_to_numpy(model.optimizer.dynamic_scale)) == 4.0
    model.train_on_batch(x[0, RANK], y[0, RANK])
    alike(model.get_weights())
    assert np.isfinite(model.get_weights()[0]).all()


@case
def test_fit_begins_with_rank_0_s_variables() -> None:
    for callbacks in (None, [ddl.DDLCallback(), ddl.DDLGlobalVariablesCallback()]):
        model = compiled(net(seed=100 + RANK), "adam")
        fit(model, callbacks=callbacks)
        alike(model.get_weights())
        alike(numbers(model.optimizer.variables))
    keras.utils.set_random_seed(200 + RANK)
    model = compiled(keras.Sequential([keras.layers.Dense(3)]), "adam")
    fit(model)
    alike(model.get_weights())


@case
def test_variables_of_every_type_are_given_out() -> None:
    from ddl_tensorflow import backends

    types = ("float32", "float16", "bfloat16", "int32", "bool", "uint8")
    made = [
        keras.Variable(np.full((2, RANK % 1 + 3), value), dtype=dtype, trainable=False)
        for dtype, value in zip(types, (RANK + 0.5,) * 3 + (RANK, RANK == 0, RANK), strict=True)
    ]
    made.append(keras.Variable(float(RANK), trainable=False))
    backends.current().give_out(made)
    for variable, expected in zip(made, (0.5, 0.5, 0.5, 0, True, 0, 0.0), strict=True):
        array = keras.ops.convert_to_numpy(keras.ops.cast(variable, "float32"))
        assert (array == float(expected)).all(), (variable, expected)


@case
def test_metrics_are_averaged() -> None:
    model = compiled(net(), "sgd")
    x, y = data()
    validation = (x[0, RANK], y[0, RANK])
    history = fit(model, callbacks=[ddl.DDLCallback()], validation_data=validation).history
    alike(np.array(values) for values in history.values())

    def evaluate(**options: Any) -> Any:
        return model.evaluate(x[0, RANK], y[0, RANK], verbose=0, return_dict=True, **options)

    mine = evaluate()
    expected = {name: ddl.allreduce(np.array(mine[name]), "average") for name in mine}
    assert evaluate(callbacks=[ddl.DDLCallback()]) == expected


@case
def test_a_model_is_saved_and_goes_on() -> None:
    model = compiled(net(), keras.optimizers.AdamW(0.01, weight_decay=0.1))
    fit(model)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.keras"
        model.save(path)
        loaded = keras.saving.load_model(path)
    assert isinstance(loaded.optimizer, keras.optimizers.AdamW)
    close(numbers(loaded.optimizer.variables), numbers(model.optimizer.variables), 0)
    for one in (model, loaded):
        fit(one)
    alike(loaded.get_weights())
    close(loaded.get_weights(), model.get_weights(), 1e-6)


@case
def test_rank_0_alone_backs_up() -> None:
    with tempfile.TemporaryDirectory() as folder:
        backup = keras.callbacks.BackupAndRestore(folder, delete_checkpoint=False)
        callbacks = [backup] if RANK == 0 else []
        fit(compiled(net(seed=500 + RANK), "sgd"), epochs=2, callbacks=callbacks)
        model = compiled(net(seed=600 + RANK), "sgd")
        history = fit(model, epochs=3, callbacks=callbacks)
    assert history.epoch == [2], history.epoch
    alike(model.get_weights())


@case
def test_an_embedding_and_dropout() -> None:
    keras.utils.set_random_seed(300 + RANK)
    layers = [
        keras.layers.Embedding(11, 4),
        keras.layers.Dropout(0.3),
        keras.layers.BatchNormalization(),
        keras.layers.Flatten(),
        keras.layers.Dense(3),
    ]
    model = compiled(keras.Sequential([keras.Input((5,), dtype="int32"), *layers]), "adam")
    words = np.random.default_rng(RANK).integers(0, 11, (12, 5))
    model.fit(words, np.arange(12) % 3, batch_size=4, epochs=2, verbose=0)
    alike(numbers(model.trainable_variables))


@case
def test_every_optimizer() -> None:
    names = "SGD RMSprop Adam AdamW Adadelta Adagrad Adamax Nadam Ftrl Lion Adafactor Lamb"
    for name in names.split():
        model = compiled(net(), getattr(keras.optimizers, name)())
        fit(model, epochs=1)
        alike(model.get_weights())


@case
def test_several_optimizers_for_one_model() -> None:
    def make() -> keras.Optimizer:
        by_name = {".*bias": keras.optimizers.SGD(0.3)}
        inner = keras.optimizers.OptimizerMap(keras.optimizers.Adam(0.01), by_name)
        return keras.optimizers.MultiOptimizer(inner)

    check(make)


@case
def test_chosen_optimizers_alone() -> None:
    """Without `ddlrun`'s choice of all: a callback warns of one that was not wrapped."""
    before, optimizers.KIND.always = optimizers.KIND.always, False
    try:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            fit(compiled(net(), "sgd"), callbacks=[ddl.DDLCallback()])
        told = [str(one.message) for one in seen if "does not average" in str(one.message)]
        assert len(told) == (SIZE > 1), told
        model = compiled(net(seed=RANK), ddl.DistributedOptimizer(keras.optimizers.SGD(0.3)))
        fit(model)
        alike(model.get_weights())
    finally:
        optimizers.KIND.always = before


@case
def test_shares_of_arrays() -> None:
    rows = np.arange(2 * SIZE + 1)
    mine = ddl.shard({"a": rows, "b": (keras.ops.convert_to_tensor(rows),)})
    np.testing.assert_array_equal(mine["a"], rows[RANK : 2 * SIZE : SIZE])
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(mine["b"][0]), mine["a"])


if __name__ == "__main__":
    run_cases(sys.argv[1])
