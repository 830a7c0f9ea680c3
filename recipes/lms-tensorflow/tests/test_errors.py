"""What goes wrong, and what is said of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import keras
import lms_tensorflow
import pytest
import tensorflow as tf
from lms_tensorflow import LMS, LimitError, LmsError, OptionError, engine
from models import BATCH, MIB, compiled, convolutions, lms, train


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"limit": "12 parsecs"}, "limit is '12 parsecs'; give a number of bytes, at least 1"),
        ({"limit": 0}, "limit is 0; give a number of bytes, at least 1"),
        ({"limit": -5}, 'or text like "12GiB" or "500MB"'),
        ({"limit": True}, "limit is True; give"),
        ({"limit": 1.5}, "limit is 1.5; give"),
        ({"min_bytes": "many"}, "min_bytes is 'many'; give"),
        ({"swapout_threshold": 1}, "swapout_threshold is 1; give a whole number of at least 2"),
        ({"swapin_ahead": 0}, "swapin_ahead is 0; give a whole number of at least 1"),
        ({"swapin_groupby": -1}, "swapin_groupby is -1; give a whole number of at least 0"),
        ({"batch_size": "32"}, "batch_size is '32'; give a whole number of at least 1"),
        ({"serialization": [True]}, "serialization has True; give a list of levels, or of"),
        ({"serialization": ["1:2:3"]}, "serialization has '1:2:3'; give a list of levels"),
        ({"serialization_by_size": 0}, "serialization_by_size is 0; give a number of bytes"),
        ({"sync_mode": 4}, "sync_mode is 4; use one of 0 (nothing waits), 1 (swap-out)"),
        ({"device": "TPU:0"}, "device is 'TPU:0'; give a name like"),
        ({"host": "CPU"}, "host is 'CPU'; give a name like"),
        ({"host": "CPU:0"}, "host is CPU:0, for the device CPU:0; give a CPU, another one"),
        ({"host": "GPU:0"}, "host is GPU:0, for the device CPU:0; give a CPU, another one"),
    ],
)
def test_a_bad_option_is_named(options: dict[str, Any], told: str) -> None:
    with pytest.raises(OptionError) as caught:
        LMS(**{"device": "CPU:0", "host": "CPU:1", **options})
    assert told in str(caught.value)


def test_an_unknown_option_is_named_and_the_others_listed() -> None:
    with pytest.raises(TypeError, match=r"unknown option 'swapout_treshold'.*swapout_threshold"):
        lms(swapout_treshold=3)


def test_without_a_gpu_it_says_how_to_try() -> None:
    assert not tf.config.list_physical_devices("GPU")
    with pytest.raises(LmsError, match=r"sees no GPU .* two logical CPU devices"):
        LMS(limit="1GiB")


def test_a_device_that_is_not_there_is_named() -> None:
    with (
        pytest.raises(OptionError, match="host is CPU:7, which TensorFlow does not have; it has"),
        LMS(limit=MIB, device="CPU:0", host="CPU:7"),
    ):
        pass


def test_a_cpu_needs_a_limit() -> None:
    with pytest.raises(OptionError, match="how much memory CPU:0 may take; give limit="), lms():
        pass


def test_without_tensorflows_optimizers_it_does_not_begin() -> None:
    before = tf.config.optimizer.get_experimental_options().get("disable_meta_optimizer", False)
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    try:
        with pytest.raises(LmsError, match="graph optimizers are switched off, and LMS is one"):
            train(convolutions(), lms(limit=MIB, batch_size=BATCH))
    finally:
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": before})


def test_a_step_whose_graph_is_not_shown_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where TensorFlow's optimizers take longer than they are given."""
    monkeypatch.setattr(engine.Engine, "optimize", lambda self, graph, round_: None)
    with pytest.raises(LmsError, match="without showing its graph, so that no limit was kept"):
        train(convolutions(), lms(limit=MIB, batch_size=BATCH))


def test_a_second_step_whose_graph_is_not_shown_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first one only tells the size of the batch."""
    learned = engine.Engine.learned

    def blind(self: engine.Engine, batch_size: int) -> None:
        learned(self, batch_size)
        self.optimize = lambda graph, round_: None  # type: ignore[method-assign]

    monkeypatch.setattr(engine.Engine, "learned", blind)
    with pytest.raises(LmsError, match="without showing its graph, so that no limit was kept"):
        train(convolutions(), lms(limit="1GiB"))


def test_an_impossible_limit_ends_fit_before_it_trains() -> None:
    model = convolutions()
    weights = [one.tobytes() for one in model.get_weights()]
    with pytest.raises(LimitError) as caught:
        train(model, lms(limit=MIB, batch_size=BATCH))
    told = str(caught.value)
    assert told.startswith("LMS: the limit of 1.0 MiB cannot be kept: ")
    assert "are variables" in told
    assert "the largest tensor there is" in told
    assert [one.tobytes() for one in model.get_weights()] == weights
    train(model)  # and the model is as it was
    with lms(limit="1GiB"):  # nothing is left active
        pass


def test_an_impossible_limit_ends_a_function() -> None:
    step = lms_tensorflow.function(
        lambda x: tf.sin(tf.cos(x)), limit=5, device="CPU:0", host="CPU:1"
    )
    for _ in range(2):
        with pytest.raises(LimitError, match="the limit of 5 B cannot be kept"):
            step(tf.ones((64, 64)))


def test_a_shape_that_is_refused_does_not_refuse_the_next() -> None:
    @lms_tensorflow.function(limit="3MiB", device="CPU:0", host="CPU:1")
    def step(x: tf.Tensor, fails: tf.Tensor) -> tf.Tensor:
        with tf.control_dependencies([tf.debugging.Assert(tf.logical_not(fails), ["of ours"])]):
            return tf.sin(tf.cos(x))

    small, large = tf.ones((16, 1024)), tf.ones((4096, 1024))
    yes, no = tf.constant(True), tf.constant(False)
    for _ in range(2):
        with pytest.raises(LimitError, match=r"the limit of 3.0 MiB cannot be kept"):
            step(large, no)
        assert tf.reduce_all(step(small, no) == tf.sin(tf.cos(small)))
    with pytest.raises(tf.errors.InvalidArgumentError, match="of ours"):
        step(small, yes)


def test_a_function_whose_graph_is_not_shown_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    step = lms_tensorflow.function(tf.sin, limit="1GiB", device="CPU:0", host="CPU:1")
    step(tf.ones((64, 64)))
    monkeypatch.setattr(engine.Engine, "optimize", lambda self, graph, round_: None)
    step(tf.ones((64, 64)))  # its graph is ready
    with pytest.raises(LmsError, match="has run the function without showing its graph"):
        step(tf.ones((64, 128)))


def test_a_block_in_which_nothing_is_planned_says_so(caplog: pytest.LogCaptureFixture) -> None:
    step, x = tf.function(tf.sin), tf.ones((64, 64))
    with lms(limit="1GiB"):
        step(x)
    assert not caplog.records
    with lms(limit="1GiB"):
        step(x)
    assert "no limit was kept in this `with`" in caplog.text


def test_an_error_in_the_planner_stops_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "make_plan", lambda *_, **__: 1 // 0)
    step = lms_tensorflow.function(
        lambda x: tf.sin(tf.cos(x)), limit="1GiB", device="CPU:0", host="CPU:1"
    )
    with pytest.raises(LmsError, match=r"cannot plan a graph: ZeroDivisionError.*please report"):
        step(tf.ones((64, 64)))


def test_steps_in_a_loop_cannot_keep_a_limit_and_it_says_so() -> None:
    model = compiled(convolutions(), steps_per_execution=2)
    with pytest.raises(LimitError, match="are in a loop"):
        train(model, lms(limit=MIB, batch_size=BATCH))


def test_two_at_once_are_refused() -> None:
    with lms(limit=MIB), pytest.raises(LmsError, match=r"another LMS is active"):
        train(convolutions(), lms(limit=14 * MIB))
    first = lms(limit=MIB)
    first.__enter__()
    first.close()  # as the message says
    with lms(limit=MIB):
        pass


def test_an_error_of_the_step_passes_and_leaves_nothing_active() -> None:
    model = convolutions()

    class Stops(keras.layers.Layer):
        def call(self, x: Any) -> Any:
            with tf.control_dependencies([tf.debugging.Assert(tf.reduce_sum(x) < 0, ["of ours"])]):
                return tf.identity(x)

    given = keras.Input((32, 32, 3))
    failing = compiled(keras.Model(given, model(Stops()(given))))
    with pytest.raises(tf.errors.InvalidArgumentError, match="of ours"):
        train(failing, lms(limit="1GiB"))
    with lms(limit=MIB):
        pass


def test_eager_steps_have_no_graph() -> None:
    model = compiled(convolutions(), run_eagerly=True)
    with pytest.raises(LmsError, match="run_eagerly=True has no graph to plan"):
        train(model, lms(limit=14 * MIB))


def test_a_report_of_nothing_says_what_is_seen() -> None:
    assert lms(limit=MIB).report().startswith("LMS has seen no graph on its device.")


PROGRAM = """
import cpus
from pathlib import Path
import lms_tensorflow
from lms_tensorflow import plugin
{change}
try:
    with lms_tensorflow.LMS(limit=1 << 20, device="CPU:0", host="CPU:1"):
        pass
except lms_tensorflow.LmsError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            "plugin._PATH = Path('/nowhere/_plugin.so')",
            "LMS: /nowhere/_plugin.so is missing; install the package lms-tensorflow again\n",
        ),
        ("plugin._PATH = Path(__import__('os').devnull)", "LMS: TensorFlow cannot load /dev/null"),
        ("plugin.load('GPU')", "LMS: this process swaps from a GPU already, and TensorFlow asks"),
    ],
)
def test_a_plugin_that_cannot_serve(change: str, told: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(change=change)],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parent,
        timeout=120,
        check=True,
    )
    assert done.stdout.startswith(told)
