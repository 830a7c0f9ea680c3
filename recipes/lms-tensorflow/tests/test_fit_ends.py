"""A `fit` under LMS leaves the model as it was, however it ends, and works with the user's own."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from lms_tensorflow import LMS
from models import BATCH, compiled, data, lms, train


def dense() -> keras.Model:
    layers = [keras.layers.Dense(64, activation="gelu") for _ in range(3)]
    model = keras.Sequential([keras.Input((64,)), *layers, keras.layers.Dense(10)])
    return compiled(model, "sgd", jit_compile=True)


def seeded() -> keras.Model:
    keras.utils.set_random_seed(3)
    return dense()


class Stop(RuntimeError):
    pass


#: All moments at which Keras calls a callback of the user's in a `fit` with validation.
MOMENTS = [
    *("train_begin", "epoch_begin", "train_batch_begin", "train_batch_end", "epoch_end"),
    *("test_begin", "test_batch_begin", "test_batch_end", "test_end", "train_end"),
]


class Raises(keras.callbacks.Callback):
    """Raises at one of these moments, the second time that it comes if it does."""

    def __init__(self, moment: str, times: int) -> None:
        super().__init__()
        self.left = times
        setattr(self, f"on_{moment}", self.count)

    def count(self, *_: Any, **__: Any) -> None:
        self.left -= 1
        if not self.left:
            raise Stop

    # Keras asks the class whether it is to call these at all.
    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None: ...
    def on_train_batch_end(self, batch: int, logs: Any = None) -> None: ...
    def on_test_batch_begin(self, batch: int, logs: Any = None) -> None: ...
    def on_test_batch_end(self, batch: int, logs: Any = None) -> None: ...


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("moment", MOMENTS)
def test_an_exception_of_another_callback_leaves_nothing(moment: str, first: bool) -> None:
    model, callback = seeded(), lms(limit="1GiB")
    raises = Raises(moment, 1 if moment in ("train_begin", "train_end") else 2)
    callbacks = [callback, raises] if first else [raises, callback]
    x, y = data(model)
    with pytest.raises(Stop):
        model.fit(
            x,
            y,
            batch_size=BATCH,
            epochs=2,
            verbose=0,
            validation_data=(x, y),
            callbacks=callbacks,
        )
    assert model.jit_compile is True
    assert "train_step" not in vars(model)
    with lms(limit="1GiB") as other:  # none is active
        tf.function(tf.sin)(tf.ones((64, 64)))
    assert other.plans
    plans, traced = len(callback.plans), []
    own = model.train_step

    def counted(one: Any) -> Any:
        traced.append(one)
        return own(one)

    model.train_step = counted
    model.make_train_function(force=True)
    losses = train(model, epochs=1).history["loss"]
    model.evaluate(x, y, batch_size=BATCH, verbose=0)
    assert np.isfinite(losses).all()
    assert traced
    assert len(callback.plans) == plans


def test_the_next_fit_is_without_it() -> None:
    model, callback = seeded(), lms(limit="1GiB")
    x, y = data(model)
    with pytest.raises(Stop):
        model.fit(x, y, verbose=0, callbacks=[callback, Raises("epoch_end", 1)])
    plans = len(callback.plans)
    assert plans
    model.fit(x[:9], y[:9], batch_size=9, verbose=0)
    assert len(callback.plans) == plans


def test_a_train_step_of_the_users_serves_and_stays() -> None:
    def run(callback: LMS | None) -> tuple[list[float], int]:
        model, calls = seeded(), []
        own = model.train_step

        def mine(one: Any) -> Any:
            calls.append(one)
            return own(one)

        model.train_step = mine
        losses = train(model, callback).history["loss"]
        assert model.train_step is mine
        before = len(calls)
        train(model)
        return losses, before

    callback = lms(limit="1GiB")
    losses, calls = run(callback)
    wanted, _ = run(None)
    assert calls >= 1
    assert losses == pytest.approx(wanted, rel=1e-5)  # without XLA the last bit may differ
    assert callback.plans


@pytest.mark.parametrize("options", [{}, {"batch_size": BATCH}])
def test_a_dataset_of_unknown_length(options: dict[str, Any]) -> None:
    model = seeded()
    x, y = data(model, batches=3)
    shapes = (tf.TensorSpec((None, 64)), tf.TensorSpec((None,), tf.int64))
    batches = tf.data.Dataset.from_generator(
        lambda: iter([(x[i::3], y[i::3]) for i in range(3)]), output_signature=shapes
    )
    callback = lms(limit="1GiB", **options)
    history = model.fit(batches, epochs=3, verbose=0, callbacks=[callback], validation_data=batches)
    assert len(history.history["loss"]) == 3
    assert callback.plans


def test_a_validation_is_planned_too() -> None:
    model = seeded()
    x, y = data(model)
    seen = []
    for more in ({}, {"validation_data": (x, y)}):
        callback = lms(limit="1GiB", batch_size=BATCH)
        train(model, callback, **more)
        seen.append(len(callback.plans))
    assert seen[1] > seen[0]
