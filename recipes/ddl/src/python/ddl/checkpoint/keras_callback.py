"""The checkpoints for Keras's `fit`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras

from ddl.checkpoint.errors import CheckpointError
from ddl.checkpoint.saver import Checkpointer


class KerasCheckpoint(keras.callbacks.Callback):  # type: ignore[misc]
    """Saves `fit` after a batch on which all ranks agree, and goes on at the batch after it.

    Put it last among the callbacks. The batches before are drawn again, without training on them.
    So the weights are those of an undisturbed run if the order of the batches is the same in each
    run, as with `shuffle=False` or a dataset that knows the epoch.

    Args:
        folder: as for `Checkpointer`.
        options: those of `Checkpointer`, and further objects to save.
    """

    def __init__(self, folder: str | Path, **options: Any) -> None:
        super().__init__()
        self._folder, self._options = folder, options
        self._saver: Checkpointer | None = None
        self._position = Position()

    def on_train_begin(self, logs: Any = None) -> None:
        """Load the newest checkpoint, and skip what was done."""
        if not self.model.built:
            raise CheckpointError("model: it is not built yet; give it a keras.Input")
        objects = {"model": self.model, "position": self._position, **self._options}
        self._saver = Checkpointer(self._folder, **objects).__enter__()
        if self._saver.steps_done:
            self.model._initial_epoch = self._position.epoch  # as Keras's BackupAndRestore does
            self._skip(self._position.batches)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Note the epoch."""
        if epoch != self._position.epoch:
            self._position.epoch, self._position.batches = epoch, 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Save if it is time; after a signal, end by SystemExit."""
        if self._skipped:
            return
        assert self._saver
        self._position.batches = batch + 1
        self._saver.step()

    def on_train_end(self, logs: Any = None) -> None:
        """Save the trained model."""
        if self._saver:
            self._position.epoch, self._position.batches = self._position.epoch + 1, 0
            self._saver.__exit__(None, None, None)
            self._saver = None

    _skipped = False

    def _skip(self, batches: int) -> None:
        """Have the model draw this many batches without training on them."""
        train, left = self.model.train_function, batches
        steps = int(getattr(self.model, "steps_per_execution", 1))

        def draw(iterator: Any) -> dict[str, Any]:
            nonlocal left
            if left <= 0:
                self._skipped = False
                self.model.train_function = train
                return dict(train(iterator) or {})
            for _ in range(steps):
                next(iterator)
            left -= steps
            return {}

        if batches:
            self._skipped = True
            self.model.train_function = draw


class Position:
    """The epoch, and the batches that are done of it."""

    def __init__(self) -> None:
        self.epoch = self.batches = 0

    def state_dict(self) -> dict[str, int]:
        """Both numbers."""
        return {"epoch": self.epoch, "batches": self.batches}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Take both numbers."""
        self.epoch, self.batches = state["epoch"], state["batches"]
