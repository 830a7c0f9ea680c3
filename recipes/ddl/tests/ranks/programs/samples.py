"""Counts how often each sample is trained on: samples.py FOLDER KIND STOPS.

A rank gets SIGUSR1 in each step, and the program goes on in the same process as a new one would:
with new objects. After STOPS such stops it really ends.
"""

import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

import ddl
import numpy as np
from ddl.checkpoint import EXIT_PREEMPTED, Checkpointer, CheckpointError
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, Subset

SAMPLES, EPOCHS, BATCH = 48, 2, 2


class Turned:
    """A batch sampler of one's own, whose order follows from the epoch."""

    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[list[int]]:
        order = np.random.default_rng(self.epoch).permutation(SAMPLES)
        mine = order[ddl.rank() :: ddl.size()].reshape(-1, BATCH)
        return iter(mine.tolist())

    def __len__(self) -> int:
        return SAMPLES // ddl.size() // BATCH


def loader_of(kind: str) -> tuple[DataLoader[Any], Any]:
    """A loader, and the sampler that knows the epoch."""
    data: Any = list(range(SAMPLES))
    sampler: Any = DistributedSampler(data, ddl.size(), ddl.rank())
    turned: Any = Turned()
    if kind == "dealt":
        return DataLoader(data, BATCH, sampler=sampler, num_workers=1), sampler
    if kind == "batches of dealt":
        return DataLoader(data, batch_sampler=BatchSampler(sampler, BATCH, False)), sampler
    if kind == "own":
        return DataLoader(data, batch_sampler=turned), turned
    return DataLoader(Subset(data, range(ddl.rank(), SAMPLES, ddl.size())), BATCH), turned


class Counts:
    """How often each sample was trained on, by epochs."""

    def __init__(self) -> None:
        self.values = np.zeros((EPOCHS, SAMPLES), np.int64)

    def state_dict(self) -> dict[str, Any]:
        return {"values": self.values}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.values[:] = state["values"]

    def add(self, epoch: int, batch: Any) -> None:
        mine = np.bincount(batch.numpy(), minlength=SAMPLES)
        self.values[epoch] += ddl.allreduce(mine)


def train(folder: str, kind: str, stops: int) -> np.ndarray:
    made = 0
    while True:
        counts, (loader, sampler) = Counts(), loader_of(kind)
        try:
            with Checkpointer(folder, counts=counts, requeue=False) as saver:
                for batch in saver.batches(loader, EPOCHS):
                    counts.add(sampler.epoch, batch)
                    if ddl.rank() == saver.steps_done % ddl.size():
                        os.kill(os.getpid(), signal.SIGUSR1)
                    saver.step()
            return counts.values
        except SystemExit as end:
            made += 1
            if made == stops or end.code != EXIT_PREEMPTED:
                raise


ddl.init()
try:
    result = train(sys.argv[1], sys.argv[2], int(sys.argv[3]))
except CheckpointError as error:
    sys.exit(f"error: {error}")
if ddl.rank() == 0:
    print("counts", result.tolist(), flush=True)
