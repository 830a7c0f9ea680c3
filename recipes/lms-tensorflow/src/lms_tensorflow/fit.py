"""The steps of one `fit` of Keras's under LMS."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from lms_tensorflow.engine import Engine
from lms_tensorflow.errors import LmsError

_log = logging.getLogger("lms_tensorflow")
_told: set[str] = set()

#: A step of Keras's: of the data that it takes from an iterator, it returns the logs.
Step = Callable[[Any], Any]


class Fit:
    """The steps of one `fit`, made anew for LMS: one that has run is past planning.

    If the size of the batch is not known before a step runs, the first step swaps everything and
    tells it. Then the step is made once more.

    Attributes:
        in_turn: whether Keras is about to run a step for this `fit`.
    """

    def __init__(self, model: Any, engine: Engine) -> None:
        self.model, self.engine, self.in_turn = model, engine, False
        self._test: PlannedStep | None = None
        self._before_test: Step | None = None
        engine.reset()
        learns = engine.options.batch_size is None
        engine.prepare(can_learn=learns)
        if model.jit_compile:
            tell_jit("this model's step")
        self._batch_size: Any = None
        if learns:
            with tf.device("CPU:0"):
                self._batch_size = tf.Variable(0, dtype=tf.int64, trainable=False)
        with self._telling_the_batch():
            model.train_function = PlannedStep(self, "train", self._learned)

    def validate(self) -> None:
        """A validation begins."""
        self._before_test = self.model.test_function
        self._test = self._test or PlannedStep(self, "test", lambda: None)
        self.model.test_function = self._test

    def validated(self) -> None:
        """It has ended."""
        self.model.test_function = self._before_test

    def end(self) -> None:
        """Give the model back as it was."""
        self.in_turn = False
        if isinstance(self.model.train_function, PlannedStep):
            self.model.train_function = None
        if isinstance(self.model.test_function, PlannedStep):
            self.model.test_function = None

    def _learned(self) -> None:
        if self.engine.learning:
            self.engine.learned(int(self._batch_size.numpy()))
            self.model.train_function = PlannedStep(self, "train", lambda: None)

    @contextmanager
    def _telling_the_batch(self) -> Iterator[None]:
        """A step that is made inside tells the size of its batch. The model's own stays."""
        model = self.model
        own, step = vars(model).get("train_step"), model.train_step

        def told(data: Any) -> Any:
            first = next(one for one in tf.nest.flatten(data) if one is not None)
            with tf.device("CPU:0"):
                self._batch_size.assign(tf.shape(first, out_type=tf.int64)[0])
            return step(data)

        if self._batch_size is None:
            yield
            return
        model.train_step = told
        try:
            yield
        finally:
            del model.train_step
            if own is not None:
                model.train_step = own


class PlannedStep:
    """A step that has the graphs while it runs for its `fit`.

    After an exception nobody tells callbacks that their `fit` has ended, and the next one finds
    this. So it runs as the model's own step wherever its callback was not told of the batch.

    Args:
        fit: that which it is for.
        kind: "train" or "test".
        then: called after each step.
    """

    def __init__(self, fit: Fit, kind: str, then: Callable[[], None]) -> None:
        self._fit, self._kind, self._then = fit, kind, then
        self._new = True
        self._own: Step | None = None
        jit_compile = fit.model.jit_compile
        try:
            fit.model.jit_compile = False
            self._step = self._make()
        finally:
            fit.model.jit_compile = jit_compile

    def _make(self) -> Step:
        """A new step of the model as it is now."""
        model, name = self._fit.model, f"{self._kind}_function"
        before = getattr(model, name)
        try:
            getattr(model, f"make_{name}")(force=True)
            step: Step = getattr(model, name)
            return step
        finally:
            setattr(model, name, before)

    def __call__(self, iterator: Any) -> Any:
        """Runs a step and returns its logs.

        Raises:
            LmsError: its graph was refused, or TensorFlow did not show it.
        """
        if not self._fit.in_turn:
            self._own = self._own or self._make()
            return self._own(iterator)
        self._fit.in_turn = False
        engine = self._fit.engine
        shown = engine.shown
        with engine.active():
            logs = self._step(iterator)
        if self._new and engine.shown == shown:
            raise not_shown(f"the first {self._kind} step")
        self._new = False
        self._then()
        return logs


def not_shown(what: str) -> LmsError:
    """The error for a graph that has run without a plan."""
    return LmsError(
        f"LMS: TensorFlow has run {what} without showing its graph, so that no limit was kept; "
        "its optimizers may have taken longer than meta_optimizer_timeout_ms allows, or nothing "
        "of it is on the device"
    )


def tell_jit(what: str) -> None:
    """Say once per process that XLA is off."""
    if "jit" not in _told:
        _told.add("jit")
        _log.warning(
            "LMS: %s runs with jit_compile=False: what XLA compiles has no graph to plan", what
        )
