"""The batches that Keras's `fit` draws, and how a later `fit` goes on in the middle of them."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from itertools import islice
from typing import Any

import keras
import numpy as np
from keras.src.trainers.epoch_iterator import EpochIterator

from ddl.checkpoint.errors import CheckpointError


def after_fit(call: Callable[[Any], None]) -> None:
    """Have `call` made with the model whenever a `fit` of Keras ends, in whatever way."""
    owner: Any = next(kind for kind in keras.Model.__mro__ if "fit" in vars(kind))
    original = owner.fit

    @functools.wraps(original)
    def fit(model: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(model, *args, **kwargs)
        finally:
            call(model)

    owner.fit = fit


def epochs_of_fit() -> EpochIterator:
    """What gives the running `fit` its batches; it has no other way to tell its callbacks.

    Raises:
        CheckpointError: no `fit` of Keras on TensorFlow is running.
    """
    frame = sys._getframe(1)
    while frame is not None and keras.backend.backend() == "tensorflow":
        found = frame.f_locals.get("epoch_iterator")
        if isinstance(found, EpochIterator):
            return found
        frame = frame.f_back  # type: ignore[assignment]
    raise CheckpointError(
        "KerasCheckpoint: it is a callback for `fit` of Keras on TensorFlow; elsewhere, use "
        "ddl.checkpoint.Checkpointer"
    )


def shuffles(epochs: EpochIterator) -> bool:
    """Whether `fit` itself shuffles the data, in an order that no later run can repeat."""
    adapter = epochs.data_adapter
    return bool(getattr(adapter, "_shuffle", False) or getattr(adapter, "shuffle", False))


class Position:
    """How far `fit` has come, with the metrics of the epoch under way.

    Attributes:
        epoch: that is under way.
        calls: of the train function that are done of it; each makes `steps_per_execution` steps.
        before: batches that were drawn from the data's iterator in epochs before; 0 if each
            epoch has an iterator of its own.
        metrics: the values of the metrics' variables, of a run before.
    """

    def __init__(self, model: Any, epochs: EpochIterator, ranks: Callable[[], int]) -> None:
        self._model, self._epochs, self._ranks = model, epochs, ranks
        self.epoch = self.calls = self.before = 0
        self.metrics: list[np.ndarray] = []

    def begin(self, epoch: int) -> None:
        """`fit` begins an epoch: count its steps from 0, or from those that Keras has kept."""
        kept = self._epochs.steps_per_epoch and self._epochs._current_iterator is not None
        self.epoch, self.calls = epoch, 0
        self.before = int(self._epochs._steps_seen) if kept else 0

    def finish(self, epochs: int) -> None:
        """`fit` has ended, after `epochs` or early: the position is behind the last epoch."""
        self.epoch, self.calls, self.before = max(self.epoch, epochs), 0, 0

    def _way(self) -> dict[str, int]:
        """What an epoch is made of; in the middle of one, nothing of it may change."""
        epochs = self._epochs
        return {
            "ranks": self._ranks(),
            "steps_per_execution": int(epochs.steps_per_execution),
            "batches in an epoch": int(
                epochs.steps_per_epoch or epochs.data_adapter.num_batches or 0
            ),
        }

    def state_dict(self) -> dict[str, Any]:
        """It with the metrics as they are now."""
        return {
            **{"epoch": self.epoch, "calls": self.calls, "before": self.before},
            "way": self._way(),
            "metrics": [
                np.array(keras.ops.convert_to_numpy(variable))
                for variable in _variables(self._model)
            ],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over the position of a run before.

        Raises:
            CheckpointError: it is in the middle of an epoch of another kind.
        """
        if state["calls"] or state["before"]:
            for name, now in self._way().items():
                if now != (then := state["way"][name]):
                    raise CheckpointError(
                        f"fit: it was interrupted in the middle of its data with {then} {name}, "
                        f"and has {now} now; start it as it was"
                    )
        self.epoch, self.calls, self.before = state["epoch"], state["calls"], state["before"]
        self.metrics = state["metrics"]

    def draw_before(self) -> None:
        """Draw from the data's iterator what the epochs before have drawn."""
        if not self.before:
            return
        iterator = iter(self._epochs._get_iterator())
        if sum(1 for _ in islice(iterator, self.before)) < self.before:
            raise _too_few()
        self._epochs._current_iterator = iterator
        self._epochs._steps_seen = self.before


class Skip:
    """Has a model draw the batches of some calls of its train function without training on them.

    Attributes:
        left: calls that are to come.
    """

    def __init__(self, model: Any, position: Position) -> None:
        self.left = position.calls
        self._model, self._metrics = model, position.metrics
        self._train = model.train_function
        model.train_function = self._draw

    def end(self) -> None:
        """Let the model train, unless another has replaced its function by now."""
        if self._model.train_function == self._draw:
            self._model.train_function = self._train

    def check_done(self) -> None:
        """Raise CheckpointError if the epoch has ended too early."""
        if self.left:
            raise _too_few()

    def _draw(self, iterator: Any) -> dict[str, Any]:
        data = list(islice(iterator, int(self._model.steps_per_execution)))
        if not data:
            raise StopIteration
        self.left -= 1
        if self.left:
            return {}
        self.end()
        if len(_variables(self._model)) != len(self._metrics):
            self._model._symbolic_build(data_batch=data[-1])  # makes the metrics' variables
        for variable, value in zip(_variables(self._model), self._metrics, strict=True):
            variable.assign(value)
        return dict(self._model.get_metrics_result())


def _variables(model: Any) -> list[Any]:
    return [variable for metric in model.metrics for variable in metric.variables]


def _too_few() -> CheckpointError:
    return CheckpointError("fit: it has fewer batches than were done; give it the data as before")
