"""The checkpoints for Keras's `fit`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras

from ddl.checkpoint.errors import CheckpointError, say
from ddl.checkpoint.keras_epochs import Position, Skip, after_fit, epochs_of_fit, shuffles
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
        self._position: Position | None = None
        self._skip: Skip | None = None
        self._first_epochs: tuple[int | None, int] | None = None  # the user's, and ours
        self._has_begun = False  # an epoch

    def on_train_begin(self, logs: Any = None) -> None:
        """Load the newest checkpoint, and skip what was done."""
        if not self.model.built:
            raise CheckpointError("model: it is not built yet; give it a keras.Input")
        epochs = epochs_of_fit()
        self._has_begun = False
        for left in [one for one in _running if one._folder == self._folder]:
            left._end()  # its fit was called before this module was imported, and has failed
        _running.append(self)
        position = self._position = Position(self.model, epochs, lambda: saver.size)
        objects = {"model": self.model, "position": position, **self._options}
        saver = self._saver = Checkpointer(self._folder, **objects)
        saver.__enter__()
        if shuffles(epochs) and saver.rank == 0:
            say(
                "fit shuffles the data: in an epoch that is interrupted, some samples may come "
                "twice and others never; give it shuffle=False, or a dataset with a seed"
            )
        if saver.steps_done:
            self._first_epochs = (self.model._initial_epoch, position.epoch)
            self.model._initial_epoch = position.epoch  # as Keras's BackupAndRestore does
            position.draw_before()
        if position.calls:
            self._skip = Skip(self.model, position)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """The position moves to this epoch, unless steps of it are still to be skipped."""
        self._has_begun = True
        if self._position and self._skip is None:
            self._position.begin(epoch)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Save if it is time; after a signal, end by SystemExit."""
        if self._skip:
            if not self._skip.left:
                self._skip = None
            return
        assert self._saver
        assert self._position
        self._position.calls += 1
        self._saver.step()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Note that the epoch is done."""
        if self._skip:
            self._skip.check_done()
        if self._position:
            self._position.begin(epoch + 1)

    def on_train_end(self, logs: Any = None) -> None:
        """Save the trained model."""
        if self._saver and self._position:
            if self._has_begun:
                self._position.finish(self.params["epochs"])
                self._saver.save()
            self._saver.__exit__(None, None, None)
        self._end()

    def _end(self) -> None:
        """Leave the model, the folder and the signals as they were: `fit` has ended somehow."""
        if self not in _running:
            return
        _running.remove(self)
        if self._first_epochs and self.model._initial_epoch == self._first_epochs[1]:
            self.model._initial_epoch = self._first_epochs[0]
        if self._skip:
            self._skip.end()
        if self._saver:
            self._saver.close()
        self._saver = self._position = self._skip = self._first_epochs = None


_running: list[KerasCheckpoint] = []


def _end_all(model: Any) -> None:
    for callback in [one for one in _running if one.model is model]:
        callback._end()


after_fit(_end_all)
