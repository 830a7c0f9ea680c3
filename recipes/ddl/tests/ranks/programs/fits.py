"""Counts how often Keras's `fit` trains on each sample: fits.py FOLDER STOPS KIND...

A rank gets SIGUSR1 in each step, and the program goes on in the same process as a new one would:
with a new model. After STOPS such stops it really ends. A sample's weight shrinks by a tenth each
time that it is trained on.
"""

import inspect
import json
import os
import signal
import sys
from typing import Any

import ddl
import keras
import numpy as np
import tensorflow as tf
from ddl.checkpoint import EXIT_PREEMPTED, CheckpointError, KerasCheckpoint

SAMPLES, BATCH = 12, 2
KINDS: dict[str, dict[str, Any]] = {
    "arrays": {"epochs": 2},
    "executions": {"epochs": 2},
    "metrics": {"epochs": 2},
    "repeat": {"epochs": 6},
    "passes": {"epochs": 6},
    "unknown": {"epochs": 2},
}


class Interrupts(keras.callbacks.Callback):  # type: ignore[misc]
    """Sends the signal in each call that trains, to one rank or the other."""

    def __init__(self) -> None:
        super().__init__()
        self.trained = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        steps = int(self.model.optimizer.iterations)
        if steps > self.trained and steps % ddl.size() == ddl.rank():
            os.kill(os.getpid(), signal.SIGUSR1)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.trained = int(self.model.optimizer.iterations)


def made(kind: str) -> tuple[Any, dict[str, Any]]:
    """A model, and what its fit is given."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input((SAMPLES,)),
            keras.layers.Dense(1, use_bias=False, kernel_initializer="ones"),
        ]
    )
    optimizer = ddl.DistributedOptimizer(keras.optimizers.SGD(0.1 * ddl.size()))
    words: dict[str, Any] = {"steps_per_execution": 4 // ddl.size()} if kind == "executions" else {}
    words |= {"metrics": ["mae"]} if kind == "metrics" else {}
    model.compile(optimizer, "mse", **words)
    x, y = ddl.shard((np.eye(SAMPLES, dtype=np.float32), np.zeros((SAMPLES, 1), np.float32)))
    given: dict[str, Any] = {"x": x, "y": y, "batch_size": BATCH, "shuffle": False}
    steps = len(x) // BATCH
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH)
    if kind == "repeat":
        given = {"x": data.repeat(), "steps_per_epoch": steps // 3}
    if kind == "passes":
        given |= {"steps_per_epoch": steps // 3}
    if kind == "unknown":
        given = {"x": data.filter(lambda *_: True)}
    return model, given | KINDS[kind]


def train(folder: str, kind: str, stops: int) -> tuple[list[int], dict[str, list[float]]]:
    """How often each sample was trained on, and the history of the last fit."""
    stopped = 0
    while True:
        model, given = made(kind)
        callbacks = [Interrupts(), KerasCheckpoint(folder, requeue=False)]
        try:
            history = model.fit(**given, verbose=0, callbacks=callbacks).history
        except SystemExit as end:
            stopped += 1
            if stopped == stops or end.code != EXIT_PREEMPTED:
                raise
        else:
            weights = model.get_weights()[0].ravel()
            return np.rint(np.log(weights) / np.log(0.9)).astype(int).tolist(), history


def end_by_an_exception(folder: str) -> None:
    """As by Ctrl-C in a notebook; everything is then as before, and `fit` works."""

    class Raises(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            raise KeyboardInterrupt

    model, given = made("arrays")
    signals = [signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGTERM)]
    for _ in range(2):
        try:
            model.fit(**given, verbose=0, callbacks=[Raises(), KerasCheckpoint(folder)])
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        assert signals == [signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGTERM)]
    try:  # the fit of a call that was begun before our callback was imported
        early = inspect.unwrap(type(model).fit)
        early(model, **given, verbose=0, callbacks=[Raises(), KerasCheckpoint(folder)])
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    train_function, model._initial_epoch = model.train_function, 0
    # Also where it ends within the epoch that it goes on with.
    try:
        model.fit(**given, verbose=0, callbacks=[Interrupts(), KerasCheckpoint(folder)])
    except SystemExit:
        print("stopped", flush=True)
    try:
        model.fit(**given, verbose=0, callbacks=[KerasCheckpoint(folder), Raises()])
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    assert model.train_function is train_function
    assert model._initial_epoch == 0
    given["shuffle"] = True
    model.fit(**given, verbose=0, callbacks=[KerasCheckpoint(folder)])
    assert signals == [signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGTERM)]
    print("trained", flush=True)


def refused(folder: str) -> None:
    """What `fit` is told when it cannot go on."""
    model, given = made("unknown")
    data = given.pop("x")
    open_end = {"x": data.repeat(), "steps_per_epoch": 4, "epochs": 3}
    for first, then in (
        (given | {"x": data}, given | {"x": data.take(1)}),
        (open_end, open_end | {"x": data.take(2)}),
    ):
        stops = 0
        while stops < 6:
            callbacks = [Interrupts(), KerasCheckpoint(f"{folder}/{len(then)}", requeue=False)]
            try:
                model.fit(**first, verbose=0, callbacks=callbacks)
            except SystemExit:
                stops += 1
            if "steps_per_epoch" not in first and stops == 4:
                break
        try:
            model.fit(**then, verbose=0, callbacks=[KerasCheckpoint(f"{folder}/{len(then)}")])
        except CheckpointError as error:
            print("told", error, flush=True)
    alone = KerasCheckpoint(folder)
    alone.set_model(model)
    unbuilt = keras.Sequential([keras.layers.Dense(1)])
    unbuilt.compile("sgd", "mse")
    for call in (
        alone.on_train_begin,
        lambda: unbuilt.fit(np.ones((2, 1)), np.ones(2), callbacks=[alone], verbose=0),
    ):
        try:
            call()
        except CheckpointError as error:
            print("told", error, flush=True)


folder, stops, *kinds = sys.argv[1:]
try:
    for kind in kinds:
        if kind in ("exception", "refused"):
            (refused if kind == "refused" else end_by_an_exception)(f"{folder}/{kind}")
            continue
        counts, history = train(f"{folder}/{kind}", kind, int(stops))
        if ddl.rank() == 0:
            last = {name: values[-1] for name, values in history.items()}
            print("result", json.dumps({"kind": kind, "counts": counts, "last": last}), flush=True)
except CheckpointError as error:
    sys.exit(f"error: {error}")
