"""Keras callbacks."""

from __future__ import annotations

from typing import Any

import ddl
import keras
import numpy as np

from ddl_tensorflow.library import ready
from ddl_tensorflow.moving import broadcast_n


class DDLCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Averages metrics over the ranks, at the end of each epoch and of each evaluation.

    Put it first in the list: those after it see the averages, among them early stopping, the
    history and the progress bar, so that all ranks decide alike. Each rank counts alike, whatever
    the size of its share.
    """

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Average the epoch's metrics."""
        _average(logs)

    def on_test_end(self, logs: dict[str, Any] | None = None) -> None:
        """Average the metrics of an evaluation."""
        _average(logs)


def _average(logs: dict[str, Any] | None) -> None:
    """In place, all metrics as one message."""
    if not logs or ready() == 1:
        return
    names = sorted(name for name, value in logs.items() if np.ndim(value) == 0)
    values = np.array([float(logs[name]) for name in names])
    logs.update(zip(names, ddl.allreduce(values, "average").tolist(), strict=True))


class DDLGlobalVariablesCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Gives every rank the variables of rank 0's model and optimizer when the training begins.

    Put it last in the list: another callback may load a checkpoint on rank 0 before. `fit` adds it
    by itself where the optimizer averages. The state of random generators stays each rank's own.
    """

    def __init__(self) -> None:
        super().__init__()
        self._is_done = False

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Give out what is there; a model that is built by its first batch comes after that."""
        self._is_done = False
        if self.model.built:
            if not self.model.optimizer.built:
                self.model.optimizer.build(self.model.trainable_variables)
            self._give_out()

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Give out the variables that the first batch has made."""
        if not self._is_done:
            self._give_out()

    def _give_out(self) -> None:
        self._is_done = True
        if ready() == 1:
            return
        variables = [*self.model.weights, *self.model.optimizer.variables]
        numbers = [one for one in variables if one.dtype != "string"]
        for variable, value in zip(numbers, broadcast_n(numbers, name="variables"), strict=True):
            variable.assign(value)
