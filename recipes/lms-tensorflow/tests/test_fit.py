"""`fit` with LMS gives, to the last bit, what it gives without."""

from __future__ import annotations

import functools
import json
import logging
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from lms_tensorflow import fit as module
from lms_tensorflow.errors import LmsError
from models import (
    BATCH,
    attention,
    compiled,
    convolutions,
    data,
    fit,
    inverted,
    lms,
    needed,
    tight,
    train,
)

MODELS = {"convolutions": convolutions, "attention": attention, "inverted": inverted}


@functools.cache
def without(name: str) -> list[Any]:
    return fit(MODELS[name])


def largest(callback: Any) -> dict[str, Any]:
    graphs = json.loads(callback.to_json())["graphs"]
    return max(graphs, key=lambda graph: graph["peak_bytes_before"])


@pytest.mark.parametrize("name", ["convolutions", "attention"])
@pytest.mark.parametrize("share", [0.75, pytest.param(0.8, marks=pytest.mark.slow)])
def test_the_same_under_a_limit(name: str, share: float) -> None:
    limit = int(needed(MODELS[name]) * share)
    callback = lms(limit=limit, min_bytes=1024)
    assert fit(MODELS[name], callback) == without(name)
    plan = largest(callback)
    assert plan["swaps"]
    assert plan["batch_size"] == BATCH  # learned: the first batch is a full one
    assert plan["peak_bytes_after"] <= plan["limit_bytes"] == limit < plan["peak_bytes_before"]


def test_a_batch_that_grows_is_refused() -> None:
    """The first step tells the size, and the plan is for that."""
    model = convolutions()
    x, y = data(model, 3)
    rows = [(x[:BATCH], y[:BATCH]), (x[: 2 * BATCH], y[: 2 * BATCH])]
    signature = tuple(tf.TensorSpec((None, *one.shape[1:]), one.dtype) for one in (x, y))
    batches = tf.data.Dataset.from_generator(lambda: iter(rows), output_signature=signature)
    callback = lms(limit=4 * needed(convolutions))
    words = f"a batch is larger than the {BATCH} that its graph was planned for"
    with pytest.raises(LmsError, match=words):
        model.fit(batches, epochs=1, verbose=0, callbacks=[callback])
    callback = lms(limit=4 * needed(convolutions), batch_size=2 * BATCH)
    model.fit(batches, epochs=1, verbose=0, callbacks=[callback])
    assert largest(callback)["batch_size"] == 2 * BATCH


def test_the_same_under_a_limit_where_tensorflow_orders_factors() -> None:
    callback = lms(limit=int(0.8 * needed(inverted, batches=2)), batch_size=BATCH, min_bytes=1024)
    assert fit(inverted, callback, batches=2) == fit(inverted, batches=2)
    assert largest(callback)["swaps"]


@pytest.mark.parametrize("name", MODELS)
def test_an_order_alone_gives_the_same_and_keeps_a_limit(name: str) -> None:
    limit = int(1.05 * needed(MODELS[name]))
    callback = lms(limit=limit, batch_size=BATCH)
    assert fit(MODELS[name], callback) == without(name)
    plan = largest(callback)
    assert plan["swaps"] == []
    assert plan["control_edges"] > 100
    assert plan["peak_bytes_after"] <= plan["limit_bytes"] == limit


EVERYTHING = {"swapout_threshold": 2, "swapin_ahead": 1, "min_bytes": 0}
APART = {"swapout_threshold": 10, "swapin_groupby": 0, "min_bytes": 0}
TOGETHER = {"swapout_threshold": 10, "swapin_ahead": 6, "swapin_groupby": 50, "sync_mode": 1}
SERIAL = {
    "swapout_threshold": 4,
    "swapin_ahead": 1,
    "serialization": ["10:60", "100:"],
    "serialization_by_size": "1MiB",
}
ONE_BY_ONE = {"swapout_threshold": 4, "serialization_by_size": 1, "min_bytes": 0}
IN_STEP = {"swapout_threshold": 10, "sync_mode": 3, "min_bytes": 1024}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("convolutions", EVERYTHING),
        ("attention", APART),
        ("attention", TOGETHER),
        ("convolutions", IN_STEP),
        ("convolutions", SERIAL),
        ("inverted", IN_STEP),
        ("inverted", ONE_BY_ONE),
        pytest.param("attention", EVERYTHING, marks=pytest.mark.slow),
        pytest.param("convolutions", APART, marks=pytest.mark.slow),
        pytest.param("convolutions", TOGETHER, marks=pytest.mark.slow),
        pytest.param("attention", IN_STEP, marks=pytest.mark.slow),
    ],
)
def test_the_same_with_all_options(name: str, options: dict[str, Any]) -> None:
    callback = lms(batch_size=BATCH, **options)
    assert fit(MODELS[name], callback) == without(name)
    assert len(largest(callback)["swaps"]) > 5


def test_what_fits_is_left_alone() -> None:
    callback = lms(limit="1GiB")
    assert fit(convolutions, callback) == without("convolutions")
    plan = largest(callback)
    assert plan["swaps"] == []
    assert plan["peak_bytes_after"] == plan["peak_bytes_before"]


@pytest.mark.slow
def test_with_validation_and_the_last_batch_smaller() -> None:
    x, y = data(convolutions())
    more = {"validation_data": (x[:20], y[:20])}
    callback = lms(limit=tight())
    assert fit(convolutions, callback, **more) == fit(convolutions, **more)
    assert largest(callback)["swaps"]


def test_a_fit_after_it_is_without_it() -> None:
    keras.utils.set_random_seed(3)
    model = convolutions()
    callback = lms(limit=tight())
    train(model, callback)
    seen = len(callback.plans)
    assert "train_step" not in vars(model)
    train(model)
    assert len(callback.plans) == seen
    evaluated = model.evaluate(*data(model), verbose=0, callbacks=[lms(limit=tight())])
    assert np.isfinite(evaluated)
    assert "train_step" not in vars(model)


def test_one_lms_serves_several_fits() -> None:
    callback = lms(limit=tight())
    first = fit(convolutions, callback)
    assert fit(convolutions, callback) == first == without("convolutions")
    assert len([plan for plan in callback.plans if plan.swaps]) == 1


def test_a_batch_that_is_known_is_not_learned() -> None:
    x, y = data(convolutions(), batches=2)
    import tensorflow as tf

    batches = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH, drop_remainder=True)
    losses = []
    for callbacks in ([], [lms(limit=tight(batches=2))]):
        keras.utils.set_random_seed(3)
        losses.append(convolutions().fit(batches, verbose=0, callbacks=callbacks).history["loss"])
    assert losses[0] == losses[1]
    assert largest(callbacks[0])["swaps"]
    assert largest(callbacks[0])["batch_size"] is None


def test_xla_is_turned_off_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    module._told.clear()
    make = functools.partial(_with_xla)
    with caplog.at_level(logging.WARNING, "lms_tensorflow"):
        for _ in range(2):
            keras.utils.set_random_seed(3)
            model = make()
            callback = lms(limit=tight())
            losses = train(model, callback).history["loss"]
            assert losses == without("convolutions")[0]
            assert largest(callback)["swaps"]
            assert model.jit_compile is True  # as it was, for what comes after
    told = [record.message for record in caplog.records]
    assert told == [
        "LMS: this model's step runs with jit_compile=False: what XLA compiles has no graph to plan"
    ]


def _with_xla() -> keras.Model:
    return compiled(convolutions(), jit_compile=True)
