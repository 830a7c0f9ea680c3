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
from lms_tensorflow.fit import Fit, not_shown, tell_jit
from lms_tensorflow.options import Options
from lms_tensorflow.plan import Plan

_log = logging.getLogger("lms_tensorflow")


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
        self._fit: Fit | None = None

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
            self._fit.end()
            self._fit = None

    def __enter__(self) -> Self:
        self._engine.prepare()
        self._engine.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: Any, trace: Any) -> None:
        self.close()
        if isinstance(error, tf.errors.OpError):
            reason = self._engine.reason(error)
            if reason is not None:
                raise reason from None
        if error is None and not self._engine.shown:
            _log.warning(
                "LMS: no limit was kept in this `with`: TensorFlow has made no graph with "
                "something on %s ready in it; functions that have run before are not planned",
                self._engine.devices.device,
            )

    def set_model(self, model: Any) -> None:
        """Keras calls this before it makes the step."""
        super().set_model(model)
        if model.run_eagerly:
            raise LmsError("LMS: run_eagerly=True has no graph to plan; compile without it")
        self.close()

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Take the step."""
        self._fit = Fit(self.model, self._engine)

    def on_test_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Take the validation of `fit`; an `evaluate` of its own is not served."""
        if self._fit is not None:
            self._fit.validate()

    def on_test_end(self, logs: dict[str, Any] | None = None) -> None:
        """The validation is over."""
        if self._fit is not None:
            self._fit.validated()

    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """The step that comes is this `fit`'s."""
        if self._fit is not None:
            self._fit.in_turn = True

    def on_test_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """And so is this one."""
        self.on_train_batch_begin(batch)

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        """The next `fit` without LMS has none of it."""
        self.close()


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
    """A program's function under LMS: each of its graphs is rewritten when it is first called."""

    def __init__(self, given: Any, lms: LMS) -> None:
        if getattr(given, "_jit_compile", False):
            tell_jit(getattr(given, "__name__", "this function"))
        self._python = getattr(given, "python_function", given)
        self._signature = getattr(given, "input_signature", None)
        self.lms = lms
        self._learns = lms._engine.options.batch_size is None
        self._renew()
        functools.update_wrapper(self, self._python)

    def _renew(self) -> None:
        """Forget the graphs: what has run is past planning."""
        self._call = tf.function(self._python, input_signature=self._signature, jit_compile=False)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        engine = self.lms._engine
        given = [one for one in tf.nest.flatten((args, kwargs)) if getattr(one, "shape", ())]
        if self._learns and given:
            rows, planned = int(given[0].shape[0]), engine.options.batch_size
            if planned is None or (engine.open_batch and rows > planned):
                engine.learned(rows)
                self._renew()
        engine.prepare()
        made, shown = self._call.experimental_get_tracing_count(), engine.shown
        with engine.active():
            result = self._call(*args, **kwargs)
        if self._call.experimental_get_tracing_count() > made and engine.shown == shown:
            raise not_shown("the function")
        return result
