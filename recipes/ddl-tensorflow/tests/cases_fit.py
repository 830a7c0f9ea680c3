"""`model.fit` as users write it."""

import tempfile
import warnings
from pathlib import Path
from typing import Any

import ddl
import keras
import numpy as np
from harness import close, equal_on_all_ranks
from ranked import RANK, SIZE, case
from training import check, compiled, data, fit, net


@case
def fit_equals_one_process_with_the_whole_batch() -> None:
    check(lambda: keras.optimizers.SGD(0.3, momentum=0.9))
    check(lambda: keras.optimizers.Adam(0.01))


@case
def fit_eagerly_and_with_several_steps_at_once() -> None:
    check(lambda: keras.optimizers.SGD(0.3), run_eagerly=True)
    check(lambda: keras.optimizers.SGD(0.3), steps_per_execution=3)


@case
def fit_without_xla_whatever_is_asked() -> None:
    for asked in ("auto", True):
        check(lambda: keras.optimizers.SGD(0.3), jit_compile=asked)
    assert compiled(net(), "sgd", jit_compile=True).jit_compile is (SIZE == 1)
    if SIZE > 1:
        assert not compiled(net(), "sgd").jit_compile


@case
def fit_begins_with_rank_0s_variables() -> None:
    for callbacks in (None, [], [ddl.DDLCallback(), ddl.DDLGlobalVariablesCallback()]):
        model = compiled(net(seed=100 + RANK), "adam")
        fit(model, callbacks=callbacks)
        equal_on_all_ranks(model.get_weights())
        equal_on_all_ranks([one.numpy() for one in model.optimizer.variables])


@case
def fit_of_a_model_that_its_first_batch_builds() -> None:
    keras.utils.set_random_seed(200 + RANK)
    model = compiled(keras.Sequential([keras.layers.Dense(3)]), "adam")
    fit(model)
    equal_on_all_ranks(model.get_weights())


@case
def fit_with_an_embedding_and_dropout() -> None:
    keras.utils.set_random_seed(300 + RANK)
    layers = [
        keras.layers.Embedding(11, 4),
        keras.layers.Dropout(0.3),
        keras.layers.Flatten(),
        keras.layers.Dense(3),
    ]
    model = compiled(keras.Sequential([keras.Input((5,), dtype="int32"), *layers]), "adam")
    words = np.random.default_rng(RANK).integers(0, 11, (12, 5))
    model.fit(words, np.arange(12) % 3, batch_size=4, epochs=2, verbose=0)
    equal_on_all_ranks(model.get_weights())


@case
def metrics_are_averaged_over_the_ranks() -> None:
    seen: list[dict[str, float]] = []

    class Watch(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            seen.append(dict(logs))

    model = compiled(net(), "sgd")
    history = fit(model, callbacks=[ddl.DDLCallback(), Watch()]).history
    equal_on_all_ranks(np.array(values) for values in history.values())
    assert [one["loss"] for one in seen] == history["loss"]
    x, y = data()
    model.evaluate(x[0, RANK], y[0, RANK], verbose=0, callbacks=[ddl.DDLCallback()])


@case
def a_model_is_saved_and_goes_on() -> None:
    """Its file knows nothing of ddl: the optimizer's class is Keras's own."""
    model = compiled(net(), keras.optimizers.AdamW(0.01, weight_decay=0.1))
    fit(model)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.keras"
        model.save(path)
        loaded = keras.saving.load_model(path)
    assert type(loaded.optimizer) is keras.optimizers.AdamW
    close(loaded.get_weights(), model.get_weights(), 0)
    close(
        (one.numpy() for one in loaded.optimizer.variables),
        (one.numpy() for one in model.optimizer.variables),
        0,
    )
    for one in (model, loaded):
        fit(one)
    equal_on_all_ranks(loaded.get_weights())
    close(loaded.get_weights(), model.get_weights(), 1e-6)


@case
def nothing_warns() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        fit(compiled(net(), "sgd"))


class Synchronised(keras.layers.Layer):
    """The batch's mean over all ranks, by an operation without a name."""

    def call(self, x: Any) -> Any:
        return x - ddl.allreduce(keras.ops.mean(x, axis=0, keepdims=True), "average")


@case
def operations_without_a_name_in_several_layers_of_a_kind() -> None:
    """Keras numbers layers by what a process has made, here another number on each rank."""
    for eagerly in (False, True):
        for _ in range(RANK):
            Synchronised()
        keras.utils.set_random_seed(7)
        layers = [keras.layers.Dense(6), Synchronised(), keras.layers.Dense(6, "tanh")]
        model = keras.Sequential(
            [keras.Input((5,)), *layers, Synchronised(), keras.layers.Dense(3)]
        )
        compiled(model, keras.optimizers.SGD(0.1), run_eagerly=eagerly)
        fit(model)
        equal_on_all_ranks(model.get_weights())
