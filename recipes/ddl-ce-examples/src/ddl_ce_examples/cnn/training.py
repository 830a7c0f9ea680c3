"""Training on made-up images, by the clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ddl_ce_examples.cnn.errors import BenchmarkError
from ddl_ce_examples.cnn.models import CLASSES, Network
from ddl_ce_examples.cnn.updates import Update

Show = Callable[[str], None]


@dataclass(frozen=True)
class Batches:
    """The batches to train on.

    Attributes:
        size: images in a batch, on each rank.
        count: batches by the clock.
        warmup: batches before, at least one: the first is slow, since it compiles.
        every: one of so many batches is shown.
    """

    size: int
    count: int
    warmup: int
    every: int


def train(network: Network, image_size: int, batches: Batches, update: Update, show: Show) -> float:
    """Trains on all ranks; the images per second of all ranks together, by this one's clock.

    Raises:
        BenchmarkError: the batch does not fit in the memory.
    """
    try:
        return _train(network, image_size, batches, update, show)
    except MemoryError as error:
        raise _does_not_fit(batches, image_size) from error
    except Exception as error:
        if type(error).__name__ == "ResourceExhaustedError":  # TensorFlow's MemoryError
            raise _does_not_fit(batches, image_size) from error
        raise


def _train(
    network: Network, image_size: int, batches: Batches, update: Update, show: Show
) -> float:
    keras = update.keras
    data = update.distribute(_images(batches.size, image_size, update.rank))
    with update.scope():
        model = network.build(keras, image_size)
        model.compile(
            optimizer=update.wrap(keras.optimizers.SGD(1e-3)),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            jit_compile=False,  # alike for all: ddl and Horovod cannot be compiled by XLA
        )
    clock = _clock(update, batches, show)
    model.fit(
        data,
        steps_per_epoch=batches.warmup + batches.count,
        shuffle=False,
        callbacks=[*update.callbacks[:1], clock, *update.callbacks[1:]],
        verbose=0,
    )
    seconds: float = clock.seconds
    return batches.size * batches.count * update.size / seconds


def _does_not_fit(batches: Batches, image_size: int) -> BenchmarkError:
    return BenchmarkError(
        f"--batch_size={batches.size} --image_size={image_size}: this does not fit in the memory; "
        "choose less"
    )


def _images(count: int, size: int, seed: int) -> Any:
    """An endless `tf.data.Dataset` of one batch: float32 (count, size, size, 3), int64 (count,)."""
    import tensorflow as tf

    random = np.random.default_rng(seed)
    images = random.random((count, size, size, 3), dtype=np.float32)
    labels = random.integers(0, CLASSES, count)
    return tf.data.Dataset.from_tensors((images, labels)).repeat()


def _clock(update: Update, batches: Batches, show: Show) -> Any:
    """A callback whose `seconds` are those of the batches after the warm-up, and which shows them.

    By the end of a batch its loss is known: nothing of it is still under way.
    """

    keras = update.keras

    class Clock(keras.callbacks.Callback):  # type: ignore[misc, name-defined]
        start = last = seconds = 0.0

        def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
            loss = float((logs or {})["loss"]) / update.losses
            now, step = time.perf_counter(), batch + 1 - batches.warmup
            if step <= 0:
                self.start = now
            elif step == 1 or step % batches.every == 0:
                speed = step * batches.size * update.size / (now - self.start)
                show(f"{step}\t{speed:.1f}\t{loss:.3f}")
            self.seconds = now - self.start

    return Clock()
