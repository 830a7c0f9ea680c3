"""The training of `train`, by Keras on ddl: the same task and demands, on all ranks of a job.

    ddlrun -H localhost:4 python -m ddl_ce_smoke.train_keras

The four steps of a Keras script on ddl: import it, split the data by rank, scale the learning
rate, pass the callbacks.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from ddl_ce_smoke import digits
from ddl_ce_smoke.outcome import Outcome, digest, tell
from ddl_ce_smoke.rank import Rank, Session, journal, session
from ddl_ce_smoke.train import BATCH, EPOCHS, add_journal_options

BACKEND = "keras"
Arrays = tuple[np.ndarray, np.ndarray]


def load() -> tuple[Arrays, Arrays]:
    """The train and test split: images of shape (n, 8, 8, 1), float32, and labels, int64."""

    def arrays(split: digits.Split) -> Arrays:
        return split.images.numpy().transpose(0, 2, 3, 1), split.labels.numpy()

    train, test = digits.load()
    return arrays(train), arrays(test)


def network(keras: Any) -> Any:
    """The network of `digits.network`, in Keras."""
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Conv2D(16, 3, padding="same", activation="relu"),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(2),
            layers.Flatten(),
            layers.Dense(128, activation="relu"),
            layers.Dense(10),
        ]
    )


def shard(data: Arrays, size: int, rank: int) -> Arrays:
    """One rank's share of the data, cut to whole batches, so that all ranks take equal steps."""
    mine = digits.shard(len(data[0]), size, rank, 0).numpy()
    mine = mine[: len(mine) // BATCH * BATCH]
    return data[0][mine], data[1][mine]


def gradient_error(model: Any, loss: Any, data: Arrays) -> float:
    """See `Outcome.gradient_error`: one step of SGD against the one that one process would take."""
    import ddl
    import keras
    import tensorflow as tf

    for variable in model.trainable_variables:
        variable.assign(np.asarray(ddl.broadcast(variable.numpy(), root=0)))
    images, labels = data
    batches = [digits.shard(len(images), ddl.size(), r, 0).numpy() for r in range(ddl.size())]
    union = np.concatenate([batch[:BATCH] for batch in batches])
    with tf.GradientTape() as tape:
        value = loss(labels[union], model(images[union], training=True))
    alone = [gradient.numpy() for gradient in tape.gradient(value, model.trainable_variables)]
    before = [variable.numpy() for variable in model.trainable_variables]
    model.compile(optimizer=keras.optimizers.SGD(1.0), loss=loss)
    mine = batches[ddl.rank()][:BATCH]
    model.train_on_batch(images[mine], labels[mine])
    difference = max(
        float(abs(old - variable.numpy() - gradient).max())
        for old, variable, gradient in zip(before, model.trainable_variables, alone, strict=True)
    )
    return difference / max(float(abs(gradient).max()) for gradient in alone)


def clock(keras: Any) -> Any:
    """A callback whose `seconds` are those of all epochs but the first, which compiles."""

    class Clock(keras.callbacks.Callback):  # type: ignore[misc]
        seconds = 0.0

        def on_epoch_end(self, epoch: int, logs: object = None) -> None:
            if epoch == 0:
                self.start = time.perf_counter()
            self.seconds = time.perf_counter() - self.start

    return Clock()


def train(job: Session) -> Outcome:
    """Trains on all ranks, by `model.fit`."""
    import ddl
    import keras

    # A different seed per rank, on purpose: the callback must make the initial weights equal.
    keras.utils.set_random_seed(digits.SEED + job.rank.index)
    whole, test = load()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    error = gradient_error(network(keras), loss, whole)
    model = network(keras)
    model.compile(optimizer=keras.optimizers.Adam(2e-3), loss=loss)
    data, timed = shard(whole, ddl.size(), ddl.rank()), clock(keras)
    model.fit(
        *data,
        batch_size=BATCH,
        epochs=EPOCHS,
        verbose=0,
        callbacks=[ddl.DDLCallback(), timed, ddl.DDLGlobalVariablesCallback()],
    )
    guessed = model.predict(test[0], batch_size=len(test[0]), verbose=0).argmax(1)
    mine = np.frombuffer(digest(model.get_weights()), dtype=np.int64)
    return Outcome(
        ddl.size(),
        float((guessed == test[1]).mean()),
        bool((np.asarray(ddl.allgather(mine)) == mine).all()),
        error,
        len(data[0]) * (EPOCHS - 1) * ddl.size() / timed.seconds,
        job.oversubscribed(ddl.size()),
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Runs on every rank; rank 0 prints. Exit status 1 if the training did not come out right."""
    parser = argparse.ArgumentParser(
        prog="python -m ddl_ce_smoke.train_keras",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_journal_options(parser)
    args = parser.parse_args(argv)
    rank = Rank.from_environment()
    with journal(args.journal, rank) as record, session(None, args.timeout) as job:
        record.write("at", what=f"training on {rank.size} ranks with Keras")
        outcome = train(job)
        record.write("training", problems=outcome.problems(), **asdict(outcome))
        if rank.index == 0:
            tell(f"handwritten digits, Keras, {rank.size} ranks", [outcome], BACKEND, "cpu", record)
    return 1 if outcome.problems() else 0


if __name__ == "__main__":
    sys.exit(main())
