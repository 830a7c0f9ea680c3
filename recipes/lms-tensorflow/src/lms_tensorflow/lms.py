"""Large Model Support for Keras's `fit`, for a `with` block, and for one function."""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Callable
from typing import Any, Self

import keras
import tensorflow as tf

from lms_tensorflow import report
from lms_tensorflow.devices import Devices
from lms_tensorflow.engine import Engine
from lms_tensorflow.errors import LmsError
from lms_tensorflow.options import Options
from lms_tensorflow.plan import Plan

_log = logging.getLogger("lms_tensorflow")
_told: set[str] = set()


class LMS(keras.callbacks.Callback):  # type: ignore[misc]
    """Keeps a training step within a limit of the device's memory, by swapping to the host.

    As a callback of `model.fit` it serves the fit. In a `with` block it serves the functions of
    `tf.function` that first run there; `function` does that for one.

    Args:
        limit: bytes, or text like "12GiB", that the step may take on the device, variables
        included. Without it and without a threshold, it is all of the device's memory.
        device: by default "GPU:0".
        host: the device that tensors are swapped to, by default "CPU:0".
        options: `swapout_threshold`, `swapin_ahead`, `swapin_groupby`, `serialization`,
            `serialization_by_size`, `sync_mode`, `min_bytes` and `batch_size`; see `Options`.

    Raises:
        OptionError: a value that an option cannot have.
        LmsError: TensorFlow sees no GPU, and no device was named.
    """

    def __init__(
        self,
        limit: int | str | None = None,
        *,
        device: str | None = None,
        host: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        known = Options.__dataclass_fields__
        for name in options:
            if name not in known:
                names = ", ".join(sorted(known))
                raise TypeError(f"LMS: unknown option {name!r}; there are device, host, {names}")
        self._engine = Engine(Options(limit=limit, **options), Devices(device, host))
        self._fit: _Fit | None = None

    @property
    def plans(self) -> list[Plan]:
        """The plans of the graphs seen."""
        return self._engine.plans

    def report(self) -> str:
        """The swapped tensors, and the peak memory predicted before and after, for people."""
        return report.text_of(self.plans)

    def to_json(self) -> str:
        """All of the plans, for programs."""
        return json.dumps(report.to_data(self.plans), indent=2)

    def close(self) -> None:
        """Leave graphs alone again, as at the end of `fit` or `with`."""
        self._engine.stop()
        if self._fit is not None:
            self._fit.restore()
            self._fit = None

    def __enter__(self) -> Self:
        self._engine.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: Any, trace: Any) -> None:
        self.close()
        if isinstance(error, tf.errors.OpError) and self._engine.failure is not None:
            raise self._engine.failure from None

    def set_model(self, model: Any) -> None:
        """Keras calls this before it makes the step."""
        super().set_model(model)
        if model.run_eagerly:
            raise LmsError("LMS: run_eagerly=True has no graph to plan; compile without it")
        self.close()
        self._fit = _Fit(model, self._engine)

    def on_test_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Leave the model alone in `evaluate`: this callback serves `fit` only."""
        if self._fit is not None and not self._fit.begun:
            self.close()

    def on_predict_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Nor does it serve `predict`."""
        self.on_test_begin()

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Take the graphs."""
        assert self._fit is not None
        self._fit.begin()

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        """Leave graphs alone again; the next `fit` without LMS has none of it."""
        self.close()


class _Fit:
    """One `fit` of a model: its step is made anew for LMS, and again after it.

    If the size of the batch is not known before a step runs, the first step swaps everything and
    tells it. Then the step is made once more.
    """

    def __init__(self, model: Any, engine: Engine) -> None:
        self.model = model
        self.engine = engine
        self.begun = False
        engine.reset()
        self.jit_compile = model.jit_compile
        if self.jit_compile:
            tell_jit("this model's step")
            model.jit_compile = False
        model.train_function = None  # one that has run is past planning
        self.learns = engine.options.batch_size is None
        self.step: Callable[[Any], Any] = lambda iterator: None
        if self.learns:
            with tf.device("CPU:0"):
                self.batch_size = tf.Variable(0, dtype=tf.int64, trainable=False)
            model.train_step = functools.partial(self._told, model.train_step)

    def begin(self) -> None:
        """The step is made, and has not run."""
        try:
            self.engine.start(can_learn=self.learns)
        except LmsError:
            self.restore()
            raise
        self.begun = True
        self.step = self.model.train_function
        self.model.train_function = self._guarded

    def restore(self) -> None:
        """Give the model back as it was."""
        self.model.jit_compile = self.jit_compile
        self.model.train_function = None
        self._forget()

    def _forget(self) -> None:
        if self.learns:
            self.learns = False
            del self.model.train_step

    def _told(self, step: Callable[[Any], Any], data: Any) -> Any:
        first = next(one for one in tf.nest.flatten(data) if one is not None)
        with tf.device("CPU:0"):
            self.batch_size.assign(tf.shape(first, out_type=tf.int64)[0])
        return step(data)

    def _guarded(self, iterator: Any) -> Any:
        try:
            logs = self.step(iterator)
        except BaseException as error:
            self.engine.stop()
            self.restore()
            if isinstance(error, tf.errors.OpError) and self.engine.failure is not None:
                raise self.engine.failure from None
            raise
        if not self.engine.has_seen:
            self.engine.stop()
            self.restore()
            raise LmsError(
                "LMS: TensorFlow has run the first step without showing its graph, so that no "
                "limit was kept; its optimizers may have taken longer than "
                "meta_optimizer_timeout_ms allows, or the step has nothing on the device"
            )
        if self.engine.learning:
            self.engine.learned(int(self.batch_size.numpy()))
            self._forget()
            self.model.make_train_function(force=True)
            self.step = self.model.train_function
            self.model.train_function = self._guarded
        return logs


def function(given: Callable[..., Any] | None = None, **options: Any) -> Any:
    """A `tf.function` whose graphs LMS plans, of a Python function or of another `tf.function`.

    Also a decorator: `@lms_tensorflow.function(limit="12GiB")`. The result has the function's
    `LMS` as `lms`. Unknown first dimensions are taken to be those of the first tensor given.

    Args:
        given: the function; `tf.function`s are made anew, without `jit_compile`.
        options: those of `LMS`.

    Raises:
        OptionError: a value that an option cannot have.
        LmsError: TensorFlow sees no GPU, and no device was named.
    """
    if given is None:
        return functools.partial(function, **options)
    return _Function(given, LMS(**options))


class _Function:
    """The result of `function`."""

    def __init__(self, given: Any, lms: LMS) -> None:
        if getattr(given, "_jit_compile", False):
            tell_jit(getattr(given, "__name__", "this function"))
        python = getattr(given, "python_function", given)
        signature = getattr(given, "input_signature", None)
        self._call = tf.function(python, input_signature=signature, jit_compile=False)
        self.lms = lms
        functools.update_wrapper(self, python)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.lms._engine.options.batch_size is None:
            given = [one for one in tf.nest.flatten((args, kwargs)) if getattr(one, "shape", ())]
            if given:
                self.lms._engine.learned(int(given[0].shape[0]))
        with self.lms:
            return self._call(*args, **kwargs)


def tell_jit(what: str) -> None:
    """Say once per process that XLA is off."""
    if "jit" not in _told:
        _told.add("jit")
        _log.warning(
            "LMS: %s runs with jit_compile=False: what XLA compiles has no graph to plan", what
        )
