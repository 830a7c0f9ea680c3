"""Profiles a step with LMS and one without; `python profiled.py FOLDER` leaves step.pickle there.

A program of its own: TensorFlow traces the memory of the allocator that comes with oneDNN, which
the other tests go without.
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import cpus  # noqa: F401
import keras
from models import BATCH, MIB, convolutions, data, lms
from tensorflow.python.eager import context
from traces import Event, Profile

LIMIT = 14 * MIB


def profiled(folder: Path, callbacks: list[Any]) -> list[Event]:
    keras.utils.set_random_seed(3)
    model = convolutions()
    x, y = data(model, batches=2)
    profile = Profile(folder)
    model.fit(x, y, batch_size=BATCH, verbose=0, callbacks=[*callbacks, profile])
    return profile.events()


def main(folder: Path) -> None:
    callback = lms(limit=LIMIT, batch_size=BATCH)
    context.enable_run_metadata()
    events = profiled(folder / "with", [callback])
    partitions = context.export_run_metadata().partition_graphs
    context.disable_run_metadata()
    without = profiled(folder / "without", [])
    result = {
        "plans": callback.to_json(),
        "events": events,
        "without": without,
        "partitions": [graph.SerializeToString() for graph in partitions],
    }
    (folder / "step.pickle").write_bytes(pickle.dumps(result))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
