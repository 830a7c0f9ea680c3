"""Profiles a step with LMS and one without; `python profiled.py FOLDER` leaves step.pickle there.

A program of its own: TensorFlow traces the memory of the allocator that comes with oneDNN, which
the other tests go without.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
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


@contextmanager
def busy(programs: int) -> Iterator[None]:
    """Programs beside, that take the processor from TensorFlow's threads at any moment."""
    spin = f"import os\nwhile os.getppid() == {os.getpid()}: pass"  # nor do they outlive us
    started = [subprocess.Popen([sys.executable, "-c", spin]) for _ in range(programs)]
    try:
        yield
    finally:
        for one in started:
            one.kill()
            one.wait()


def main(folder: Path) -> None:
    callback = lms(limit=LIMIT, batch_size=BATCH)
    context.enable_run_metadata()
    runs = [profiled(folder / "with", [callback])]
    partitions = context.export_run_metadata().partition_graphs
    context.disable_run_metadata()
    without = [profiled(folder / "without", [])]
    plans = callback.to_json()
    with busy(2 * (os.cpu_count() or 1)):
        runs += [profiled(folder / f"busy{i}", [callback]) for i in range(2)]
        without.append(profiled(folder / "busy-without", []))
    result = {
        "plans": plans,
        "runs": runs,
        "without": without,
        "partitions": [graph.SerializeToString() for graph in partitions],
    }
    (folder / "step.pickle").write_bytes(pickle.dumps(result))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
