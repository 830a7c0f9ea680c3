"""TensorFlow 1's optimizers: in graphs and sessions, eagerly, and in tf-keras."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import ddl
import numpy as np
import tensorflow as tf
import tf_keras as keras
from cases_keras2 import compiled, fit
from ddl_tensorflow import tf1 as ours
from harness import close, equal_on_all_ranks, everyone, given
from ranked import RANK, SIZE, case

tf1 = tf.compat.v1
STEPS = 4
ROWS = everyone(3).astype("float32")
BEGINNINGS = np.stack([given(50 + rank, 3).numpy() for rank in range(SIZE)])

Make = Callable[[], Any]
Build = Callable[[Any, Any, Any], Any]


@contextmanager
def without_ddl() -> Iterator[None]:
    before, ours.KIND.always = ours.KIND.always, False
    try:
        yield
    finally:
        ours.KIND.always = before


@contextmanager
def network(rows: np.ndarray, begin: np.ndarray, use_resource: bool = False) -> Iterator[Any]:
    """A graph with weights, and their mean distance from some rows."""
    with tf.Graph().as_default():
        w = tf1.get_variable("w", initializer=begin, use_resource=use_resource)
        yield w, tf.reduce_mean(tf.reduce_sum((w - rows) ** 2, 1))


def minimize(optimizer: Any, loss: Any, _: Any) -> Any:
    return optimizer.minimize(loss)


def train(make: Make, build: Build, *where: Any) -> np.ndarray:
    with network(*where) as (w, loss):
        step = build(make(), loss, w)
        with tf1.Session() as session:
            session.run(tf1.global_variables_initializer())
            for _ in range(STEPS):
                session.run(step)
            return np.asarray(session.run(w))


def check(make: Make, build: Build = minimize, use_resource: bool = False) -> None:
    """Equal on all ranks, and to one process that has all rows and rank 0's beginning."""
    result = train(make, build, ROWS[RANK : RANK + 1], BEGINNINGS[RANK], use_resource)
    equal_on_all_ranks([result])
    with without_ddl():
        close([result], [train(make, build, ROWS, BEGINNINGS[0], use_resource)], 1e-4)


def sgd() -> Any:
    return tf1.train.GradientDescentOptimizer(0.1)


def averages(graph: Any) -> int:
    return sum(one.type == "DdlAllreduce" for one in graph.get_operations())


@case
def tf1_session_equals_one_process_with_all_rows() -> None:
    makes: list[Make] = [
        sgd,
        lambda: tf1.train.MomentumOptimizer(0.1, 0.9),
        lambda: tf1.train.AdamOptimizer(0.1),
        lambda: tf1.train.AdadeltaOptimizer(1.0),
        lambda: tf1.train.RMSPropOptimizer(0.1),
    ]
    for make in makes:
        for use_resource in (False, True):
            check(make, use_resource=use_resource)


@case
def tf1_gradients_are_averaged_once_and_before_they_are_clipped() -> None:
    def clip(optimizer: Any, loss: Any, _: Any) -> Any:
        grads, variables = zip(*optimizer.compute_gradients(loss), strict=True)
        clipped, _norm = tf.clip_by_global_norm(grads, 0.5)
        pairs = [(tf.clip_by_value(one, -0.3, 0.3), w) for one, w in zip(clipped, variables)]  # noqa: B905
        step = optimizer.apply_gradients(pairs)
        assert not ours.KIND.always or averages(loss.graph) == (SIZE > 1)
        return step

    check(sgd, clip)


@case
def tf1_gradients_that_the_program_makes_are_averaged() -> None:
    def of_gradients(optimizer: Any, loss: Any, w: Any) -> Any:
        return optimizer.apply_gradients(zip(tf.gradients(loss, [w]), [w], strict=True))

    def scaled_by_data(optimizer: Any, loss: Any, w: Any) -> Any:
        """By this rank's own: what was an average is none any more."""
        ((grad, _),) = optimizer.compute_gradients(loss)
        factor = tf1.placeholder_with_default(float(RANK + 1), ())
        return optimizer.apply_gradients([(grad * factor / (SIZE + 1) * 2, w)])

    def scaled_by_a_constant(optimizer: Any, loss: Any, _: Any) -> Any:
        ((grad, w),) = optimizer.compute_gradients(loss)
        return optimizer.apply_gradients([(grad * (RANK + 1.0), w)])

    def by_hand(optimizer: Any, loss: Any, _: Any) -> Any:
        pairs = optimizer.compute_gradients(loss)
        if ours.KIND.always:
            pairs = ddl.grads_reduce(pairs)
            before = averages(loss.graph)
        step = optimizer.apply_gradients(pairs)
        assert not ours.KIND.always or averages(loss.graph) == before
        return step

    check(sgd, of_gradients)
    check(sgd, by_hand)
    for build in (scaled_by_data, scaled_by_a_constant):
        where = (ROWS[RANK : RANK + 1], BEGINNINGS[RANK])
        equal_on_all_ranks([train(sgd, build, *where)])


@case
def tf1_steps_within_control_flow() -> None:
    def in_cond(optimizer: Any, loss: Any, w: Any) -> Any:
        always = tf1.placeholder_with_default(True, ())

        def step() -> Any:
            with tf.control_dependencies([optimizer.apply_gradients([(grad, w)])]):
                return tf.constant(1)

        (grad,) = tf.gradients(loss, [w])
        return tf.cond(always, step, lambda: tf.constant(0))

    was_v2 = tf1.control_flow_v2_enabled()
    for switch in (tf1.disable_control_flow_v2, tf1.enable_control_flow_v2):
        switch()
        try:
            check(sgd, in_cond, use_resource=True)
        finally:
            (tf1.enable_control_flow_v2 if was_v2 else tf1.disable_control_flow_v2)()


@case
def tf1_sparse_gradients() -> None:
    with tf.Graph().as_default():
        w = tf1.get_variable("w", initializer=np.full((SIZE + 1, 2), RANK + 1.0, "float32"))
        step = sgd().minimize(tf.reduce_sum(tf.nn.embedding_lookup(w, [RANK, SIZE])))
        with tf1.Session() as session:
            session.run(tf1.global_variables_initializer())
            session.run(step)
            result = session.run(w)
    expected = np.full((SIZE + 1, 2), 1 - 0.1 / SIZE, "float32")
    expected[-1] = 0.9
    close([result], [expected])


@case
def tf1_loss_scaling_skips_steps_on_all_ranks_together() -> None:
    with tf.Graph().as_default():
        w = tf1.get_variable("w", initializer=np.ones(3, "float32"), use_resource=True)
        x = tf1.placeholder(tf.float32, (3,))
        scale = tf1.mixed_precision.DynamicLossScale(8.0)
        scaled = tf1.mixed_precision.MixedPrecisionLossScaleOptimizer(sgd(), scale)
        step = scaled.minimize(tf.reduce_sum(w * x))
        with tf1.Session() as session:
            session.run(tf1.global_variables_initializer())
            for x_of_rank in (ROWS[RANK], ROWS[RANK] * (np.inf if RANK == SIZE - 1 else 1)):
                session.run(step, {x: x_of_rank})
                close([session.run(w)], [1 - 0.1 * ROWS.mean(0)])


@case
def tf1_monitored_sessions_begin_with_rank_0s_checkpoint() -> None:
    """Which it alone has; the graph is finalized."""
    with tempfile.TemporaryDirectory() as folder:
        for begins in (0, STEPS):
            with network(ROWS[RANK : RANK + 1], BEGINNINGS[RANK]) as (w, loss):
                count = tf1.train.get_or_create_global_step()
                step = tf1.train.AdamOptimizer(0.1).minimize(loss, global_step=count)
                place = folder if RANK == 0 else None
                session = tf1.train.MonitoredTrainingSession(checkpoint_dir=place)
                with session:
                    for i in range(STEPS):
                        session.run(step)
                        assert session.run(count) == begins + i + 1
                    equal_on_all_ranks([session.run(w)])


@case
def tf1_sessions_begin_again_after_an_initializer_and_a_restore() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        network(ROWS[RANK : RANK + 1], BEGINNINGS[RANK]) as (w, loss),
    ):
        step = sgd().minimize(loss)
        both = tf.group(tf1.global_variables_initializer(), tf1.local_variables_initializer())
        saver = tf1.train.Saver()
        with tf1.Session() as session:
            session.run(both)
            saver.save(session, f"{folder}/own")
            for again in (
                lambda: session.run(both),
                lambda: session.run(w.initializer),
                lambda: saver.restore(session, f"{folder}/own"),
            ):
                again()
                assert (session.run(w) == BEGINNINGS[RANK]).all()
                session.run(step)
                equal_on_all_ranks([session.run(w)])


@case
def tf1_sessions_in_other_ways() -> None:
    """By a callable; and rank 0 alone initializes."""
    for callable_of in (
        lambda session, step: session.make_callable(step),
        lambda session, step: session.make_callable([step]),
        lambda session, step: session.make_callable(step, feed_list=[]),
    ):
        with network(ROWS[RANK : RANK + 1], BEGINNINGS[RANK]) as (w, loss):
            step = sgd().minimize(loss)
            with tf1.Session() as session:
                if RANK == 0:
                    session.run(tf1.global_variables_initializer())
                callable_of(session, step)()
                close([session.run(w)], [BEGINNINGS[0] - 0.2 * (BEGINNINGS[0] - ROWS.mean(0))])


@case
def tf1_variables_of_any_kind_are_given_out() -> None:
    with network(ROWS[RANK : RANK + 1], BEGINNINGS[RANK]) as (_, loss):
        shared = tf.constant([RANK, RANK])
        others = [
            tf1.get_variable(f"v{i}", initializer=value, trainable=False)
            for i, value in enumerate([
                shared, shared, tf.constant(RANK == 0), tf.constant(RANK + 0.5, tf.bfloat16),
                tf.zeros((0, 2)),
            ])
        ]  # fmt: skip
        word = tf1.get_variable("word", initializer=f"rank {RANK}", trainable=False)
        never = tf1.get_variable("never", initializer=1.0, trainable=False)
        step = sgd().minimize(loss)
        with tf1.Session() as session:
            session.run([one.initializer for one in tf1.global_variables() if one is not never])
            session.run(step)
            equal_on_all_ranks(np.asarray(one, "float64") for one in session.run(others))
            assert session.run(word) == f"rank {RANK}".encode()
            assert not session.run(tf1.is_variable_initialized(never))


@case
def tf1_optimizers_average_eagerly_and_in_functions() -> None:
    for wrap in (lambda step: step, tf.function):
        w = tf.Variable(np.ones(3, "float32"))
        optimizer = sgd()

        def step(w: Any = w, optimizer: Any = optimizer) -> None:
            optimizer.minimize(lambda: tf.reduce_sum(w * ROWS[RANK]), var_list=[w])

        wrap(step)()
        close([w.numpy()], [1 - 0.1 * ROWS.mean(0)])


@case
def tf1_optimizers_in_tf_keras() -> None:
    for callbacks in (None, [ddl.DDLCallback(), ddl.DDLGlobalVariablesCallback()]):
        model = compiled(tf1.train.AdadeltaOptimizer(1.0), seed=100 + RANK)
        for _ in range(2):
            fit(model, callbacks=callbacks)
            equal_on_all_ranks(model.get_weights())


@case
def tf1_optimizers_can_be_wrapped() -> None:
    from ddl_tensorflow.averaging import is_distributed

    with without_ddl():
        wrapped, other = ddl.DistributedOptimizer(sgd()), sgd()
        assert is_distributed(wrapped) is (SIZE > 1)
        assert is_distributed(keras.optimizers.get(wrapped)) is (SIZE > 1)
        assert not is_distributed(other)


@case
def tf1_leaves_other_graphs_alone() -> None:
    """A rank may have a session of its own, and one that evaluates before the first step."""
    with network(ROWS[RANK : RANK + 1], BEGINNINGS[RANK]) as (w, loss):
        step = sgd().minimize(loss)
        with tf1.Session() as session:
            session.run(tf1.global_variables_initializer())
            if RANK == 0:
                session.run([loss, w])
            with tf.Graph().as_default(), tf1.Session() as mine:
                assert mine.run(tf.constant(RANK)) == RANK
            session.run(step)
            equal_on_all_ranks([session.run(w)])
