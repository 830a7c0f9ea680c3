"""`tf.function`: by one call, in a `with` block, with loops, branches and other functions."""

from __future__ import annotations

import json
import logging
from typing import Any

import lms_tensorflow
import numpy as np
import pytest
import tensorflow as tf
from lms_tensorflow import fit as module
from lms_tensorflow.errors import LmsError
from models import MIB, lms

DEVICES = {"device": "CPU:0", "host": "CPU:1"}


def chain(x: tf.Tensor) -> tf.Tensor:
    """32 squares of sines, each used again on the way back."""
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = x
        for _ in range(32):
            y = tf.sin(y) * y
    return tape.gradient(y, x)


def given(rows: int = 64) -> tf.Tensor:
    return tf.constant(np.random.default_rng(1).random((rows, 1024), dtype=np.float32))


def planned(callback: Any) -> dict[str, Any]:
    graphs = json.loads(callback.to_json())["graphs"]
    return max(graphs, key=lambda graph: graph["peak_bytes_before"])


def test_one_call_is_enough() -> None:
    x = given()
    swapped = lms_tensorflow.function(chain, limit=10 * MIB, **DEVICES)
    assert tf.reduce_all(swapped(x) == tf.function(chain)(x))
    plan = planned(swapped.lms)
    assert plan["swaps"]
    assert plan["peak_bytes_after"] <= 10 * MIB < plan["peak_bytes_before"]
    assert tf.reduce_all(swapped(x) == swapped(x))  # nothing is planned twice
    assert len(swapped.lms.plans) == 1


def test_it_decorates_and_takes_the_batch_of_what_it_is_given() -> None:
    @lms_tensorflow.function(limit=10 * MIB, **DEVICES)
    @tf.function(input_signature=[tf.TensorSpec((None, 1024))])
    def step(x: tf.Tensor) -> tf.Tensor:
        return chain(x)

    assert tf.reduce_all(step(given()) == tf.function(chain)(given()))
    assert planned(step.lms)["batch_size"] == 64
    assert planned(step.lms)["swaps"]


def test_a_larger_batch_is_planned_anew() -> None:
    """Its graph would serve it, with the plan of the smaller one."""

    @lms_tensorflow.function(limit=20 * MIB, **DEVICES)
    @tf.function(input_signature=[tf.TensorSpec((None, 1024))])
    def step(x: tf.Tensor) -> tf.Tensor:
        return chain(x)

    step(given(32))
    assert not planned(step.lms)["swaps"]
    assert tf.reduce_all(step(given(128)) == tf.function(chain)(given(128)))
    plan = planned(step.lms)
    assert plan["batch_size"] == 128
    assert plan["peak_bytes_after"] <= 20 * MIB < plan["peak_bytes_before"]
    step(given(64))
    assert planned(step.lms)["batch_size"] == 128  # a smaller one needs no other plan


def test_a_batch_larger_than_was_said_is_refused() -> None:
    signature = [tf.TensorSpec((None, 1024)), tf.TensorSpec((None, 1024))]
    open_step = tf.function(lambda x, y: chain(x) + y, input_signature=signature)
    step = lms_tensorflow.function(open_step, limit=20 * MIB, batch_size=64, **DEVICES)
    step(given(64), given(64))
    for rows in (65, 128):
        with pytest.raises(LmsError, match="a batch is larger than the 64 that its graph was"):
            step(given(rows), given(rows))
    with pytest.raises(LmsError, match="larger than the 64"):
        step(given(1), given(65))  # whichever input it is
    assert tf.reduce_all(step(given(8), given(8)) == open_step(given(8), given(8)))
    again = tf.function(lambda x: chain(x), input_signature=signature[:1])
    with pytest.raises(LmsError, match="larger than the 8 "), lms(limit=20 * MIB, batch_size=8):
        again(given(9))


def test_xla_is_turned_off(caplog: pytest.LogCaptureFixture) -> None:
    module._told.clear()
    with caplog.at_level(logging.WARNING, "lms_tensorflow"):
        step = lms_tensorflow.function(
            tf.function(chain, jit_compile=True), limit=10 * MIB, **DEVICES
        )
    assert [record.message for record in caplog.records] == [
        "LMS: chain runs with jit_compile=False: what XLA compiles has no graph to plan"
    ]
    step(given())
    assert planned(step.lms)["swaps"]


def test_a_with_block_serves_what_first_runs_in_it() -> None:
    x, step = given(), tf.function(chain)
    with lms(limit=10 * MIB) as callback:
        inside = step(x)
    assert planned(callback)["swaps"]
    assert tf.reduce_all(inside == tf.function(chain)(x))
    assert len(callback.plans) == 1  # the last one was outside


def test_a_shape_that_nobody_knows_is_refused() -> None:
    step = tf.function(chain, input_signature=[tf.TensorSpec((None, 1024))])
    with (
        pytest.raises(lms_tensorflow.LmsError, match="give batch_size=, or shapes without None"),
        lms(limit=10 * MIB),
    ):
        step(given())


def looped(x: tf.Tensor, times: tf.Tensor) -> tf.Tensor:
    """A loop and a branch between a long way there and back."""
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = chain_of(x)
        y = tf.while_loop(
            lambda i, _: i < times, lambda i, one: (i + 1, tf.sin(one)), (tf.constant(0), y)
        )[1]
        y = tf.cond(tf.reduce_sum(y) > 0, lambda: y * 2.0, lambda: tf.cos(y) * x)
        y = chain_of(y)
    return tape.gradient(y, x)


def chain_of(y: tf.Tensor) -> tf.Tensor:
    for _ in range(12):
        y = tf.sin(y) * y
    return y


@pytest.mark.parametrize("times", [0, 3])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_loops_and_branches_stay_and_the_rest_is_swapped(times: int, sign: float) -> None:
    x, count = given() * sign, tf.constant(times)
    swapped = lms_tensorflow.function(looped, swapout_threshold=6, **DEVICES)
    assert tf.reduce_all(swapped(x, count) == tf.function(looped)(x, count))
    plan = planned(swapped.lms)
    assert len(plan["swaps"]) > 10
    assert plan["kept"]["in a loop"]["tensors"] > 0
    assert plan["kept"]["in a branch"]["tensors"] > 0
    assert "stays, in a loop:" in swapped.lms.report()


@pytest.mark.parametrize("times", [0, 3])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_limit_with_loops_and_branches(times: int, sign: float) -> None:
    """The operations around them are held to an order, and they to their place in it."""
    x, count = given() * sign, tf.constant(times)
    swapped = lms_tensorflow.function(looped, limit=7 * MIB, **DEVICES)
    assert tf.reduce_all(swapped(x, count) == tf.function(looped)(x, count))
    plan = planned(swapped.lms)
    assert plan["control_edges"] > 10
    assert plan["peak_bytes_after"] <= 7 * MIB < plan["peak_bytes_before"]
    assert "operations on lists of tensors, which grow in loops" in swapped.lms.report()


def test_a_limit_with_two_models() -> None:
    """Each one's step has the limit to itself: one runs after the other."""
    x = given()
    with lms(limit=6 * MIB) as callback:
        first, second = tf.function(chain), tf.function(lambda x: chain(x * 2.0))
        assert tf.reduce_all(first(x) == tf.function(chain)(x))
        second(x)
    assert len(callback.plans) > 1
    for plan in callback.plans:
        assert plan.order is None or plan.peak_after <= 6 * MIB
    assert sum(plan.order is not None for plan in callback.plans) >= 2


def test_an_update_waits_for_those_who_read_the_old_value() -> None:
    """While somebody holds it, TensorFlow would update a copy: a second one in memory."""
    variable = tf.Variable(given())

    def step(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = chain_of(x * variable)
        gradient, back = tape.gradient(y, [variable, x])
        variable.assign_sub(gradient)
        return tf.reduce_sum(back)

    start = variable.numpy()
    wanted = float(tf.function(step)(given()))
    variable.assign(start)
    swapped = lms_tensorflow.function(step, limit=5 * MIB, **DEVICES)
    assert float(swapped(given())) == wanted
    plan = max(swapped.lms.plans, key=lambda one: one.peak_before)
    level = {one.op: one.level for one in plan.graph.operations}
    handles = {plan.graph.index[name] for name in plan.sizes.handles}
    readers = [i for one in handles for i in plan.graph.value_readers((one, 0))]
    assert max(plan.graph.operations[i].level for i in readers) <= level["AssignSubVariableOp"]
    assert "a variable's old value" not in plan.kept


def test_variables_stay_and_states_are_kept_in_order() -> None:
    variable = tf.Variable(given())
    count = tf.Variable(0)

    def step() -> tf.Tensor:
        with tf.GradientTape() as tape:
            y = chain_of(variable * tf.random.stateless_uniform((64, 1024), [1, 2]))
        gradient = tape.gradient(y, variable)
        count.assign_add(1)
        variable.assign_sub(0.1 * gradient)
        return tf.reduce_sum(variable)

    start = variable.numpy()
    wanted = [float(one) for one in (tf.function(step)() for _ in range(3))]
    variable.assign(start)
    swapped = lms_tensorflow.function(step, swapout_threshold=6, **DEVICES)
    assert [float(swapped()) for _ in range(3)] == wanted
    assert count.numpy() == 6
    plan = planned(swapped.lms)
    assert plan["variables_bytes"] == 64 * 1024 * 4 + 4
    assert plan["swaps"]
    assert not any("ReadVariableOp" in swap["operation"] for swap in plan["swaps"])
