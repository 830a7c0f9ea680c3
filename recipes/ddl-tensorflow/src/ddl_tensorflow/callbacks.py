"""Keras callbacks."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import Any

import ddl
import keras
import numpy as np

from ddl_tensorflow import backends
from ddl_tensorflow._wrap import around
from ddl_tensorflow.averaging import is_distributed, kind_of


def _ranks() -> int:
    ranks: int = backends.current().participants()
    return ranks


class _Callback(keras.callbacks.Callback):  # type: ignore[misc]
    """A callback of Keras 3, and of tf-keras, whose list of callbacks asks what each implements."""

    def _implements_train_batch_hooks(self) -> bool:
        return type(self).on_train_batch_begin is not keras.callbacks.Callback.on_train_batch_begin

    def _implements_test_batch_hooks(self) -> bool:
        return False

    def _implements_predict_batch_hooks(self) -> bool:
        return False


class DDLCallback(_Callback):
    """Averages metrics over the ranks, at the end of each epoch and of each evaluation.

    Put it first in the list: those after it see the averages, among them early stopping, the
    history and the progress bar, so that all ranks decide alike. Each rank counts alike, whatever
    the size of its share. `evaluate` with this callback returns averages.
    """

    def __init__(self) -> None:
        super().__init__()
        _hook_evaluate()  # callbacks are not given the result of evaluate

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Warn when each rank would train by itself."""
        _check_averages(self.model)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Average the epoch's metrics."""
        _average(logs)

    def on_test_end(self, logs: dict[str, Any] | None = None) -> None:
        """Average the metrics of an evaluation."""
        _average(logs)


def averaged(result: Any) -> Any:
    """The averages of `evaluate`'s result: a number, a list or a dictionary of numbers."""
    if isinstance(result, dict):
        logs = dict(result)
    else:
        # Named by number, in order.
        values = result if isinstance(result, list) else [result]
        logs = {f"{i:04}": value for i, value in enumerate(values)}
    _average(logs)
    if isinstance(result, dict):
        return logs
    return list(logs.values()) if isinstance(result, list) else logs["0000"]


def _average(logs: dict[str, Any] | None) -> None:
    """Average all metrics in place, as one message."""
    if not logs or _ranks() == 1:
        return
    names = sorted(name for name, value in logs.items() if np.ndim(value) == 0)
    values = np.array([float(logs[name]) for name in names])
    logs.update(zip(names, ddl.allreduce(values, "average").tolist(), strict=True))


def _check_averages(model: Any) -> None:
    if _ranks() > 1 and not is_distributed(model.optimizer):
        warnings.warn(
            "the optimizer does not average over the ranks; wrap it: ddl.DistributedOptimizer",
            stacklevel=2,
        )


class DDLGlobalVariablesCallback(_Callback):
    """Gives every rank the variables of rank 0's model and optimizer when the training begins.

    Put it last in the list: another callback may load a checkpoint on rank 0 before, and with it
    the epoch to begin with. `fit` adds it by itself where the optimizer averages. The state of
    random generators stays each rank's own.
    """

    _supports_tf_logs = True  # as it takes none, tf-keras need not wait for them

    def __init__(self) -> None:
        super().__init__()
        self._has_begun = False
        self._is_done = False

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Give out the variables; a model that is built by its first batch comes after that."""
        _check_averages(self.model)
        self._has_begun = False
        if _ranks() > 1:
            self._begin_with_rank_0s_epoch()
        self._is_done = backends.current().begins_alone()
        if self.model.built and not self._is_done:
            if kind := kind_of(self.model.optimizer):
                kind.build(self.model.optimizer, self.model.trainable_variables)
            self._give_out()

    # on_train_batch_end does not serve: where there is one, Keras waits for each batch's metrics.
    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Give out the variables that the first batch has made."""
        if self._has_begun and not self._is_done:
            self._give_out()
        self._has_begun = True

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Give them out after an epoch of one batch."""
        if not self._is_done:
            self._give_out()

    def _begin_with_rank_0s_epoch(self) -> None:
        """BackupAndRestore sets it where it finds a backup."""
        if not hasattr(self.model, "_initial_epoch"):  # tf-keras reads its backup later
            return
        mine = self.model._initial_epoch
        epoch = int(ddl.broadcast(np.array(-1 if mine is None else mine, np.int64)))
        self.model._initial_epoch = None if epoch < 0 else epoch

    def _give_out(self) -> None:
        self._is_done = True
        if _ranks() == 1:
            return
        optimizer = self.model.optimizer
        kind = kind_of(optimizer)
        variables = [*self.model.weights, *(kind.state(optimizer) if kind else ())]
        numbers = [one for one in variables if one.dtype != "string"]
        backends.current().give_out(numbers)


def fit(original: Callable[..., Any], model: Any, *args: Any, **kwargs: Any) -> Any:
    """`fit` that begins with rank 0's variables, also when the user has not asked for it."""
    if not is_distributed(getattr(model, "optimizer", None)):
        return original(model, *args, **kwargs)
    call = inspect.signature(original).bind(model, *args, **kwargs)
    given: Any = call.arguments.get("callbacks")
    ours = DDLGlobalVariablesCallback()
    users = getattr(given, "callbacks", None)  # Keras's own list of them, which the user has made
    listed = _as_list(given) if users is None else users
    if any(isinstance(one, DDLGlobalVariablesCallback) for one in listed):
        return original(model, *args, **kwargs)
    if users is None:
        call.arguments["callbacks"] = [*listed, ours]
        return original(*call.args, **call.kwargs)
    ours.set_model(model)
    users.append(ours)
    try:
        return original(model, *args, **kwargs)
    finally:
        users.remove(ours)


def _as_list(given: Any) -> list[Any]:
    return list(given) if isinstance(given, (list, tuple)) else [given] if given else []


def evaluate(original: Callable[..., Any], model: Any, *args: Any, **kwargs: Any) -> Any:
    """`evaluate` whose result is averaged if it has a DDLCallback; in `fit` that one does so."""
    result = original(model, *args, **kwargs)
    call = inspect.signature(original).bind(model, *args, **kwargs)
    given = call.arguments.get("callbacks")
    listed = getattr(given, "callbacks", given if isinstance(given, (list, tuple)) else [given])
    is_in_fit = "_use_cached_eval_dataset" in kwargs
    asked = any(isinstance(one, DDLCallback) for one in listed) and not is_in_fit
    return averaged(result) if asked else result


@functools.cache
def _hook_evaluate() -> None:
    """Change the trainer of Keras 3, once."""
    around(backends.current().trainer(), "evaluate", evaluate)
