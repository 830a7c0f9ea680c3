"""Saves a training program at a step on which all ranks agree, and goes on from there."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np

from ddl.checkpoint import batches, reading, sharded, store, writing
from ddl.checkpoint.errors import CheckpointError, say
from ddl.checkpoint.ranks import Alone, Ranks, collect, find_ranks, patient
from ddl.checkpoint.signals import DEFAULT_SIGNALS, Notice
from ddl.checkpoint.slurm import requeue
from ddl.checkpoint.state import Objects, check_objects, set_random_states

EXIT_PREEMPTED = os.EX_TEMPFAIL
"""75: the exit code of a program that has saved and wants to be started again."""


class Checkpointer:
    """Saves when a signal announces the end of the job, and every so many steps.

    A context manager: entered, it loads the newest complete checkpoint of the folder. All ranks
    enter it, after the process group, hvd.init or ddl.init.

    Args:
        folder: for the checkpoints of this job alone, on a file system that all its hosts see.
        every: steps between the questions whether a rank has got a signal: an allreduce of four
            bytes each. `average` asks along with the program's own numbers.
        save_every: steps between checkpoints that are made without a signal; None: none is.
        keep: how many complete checkpoints stay, at least 1.
        signals: those that announce the end.
        sharded: write by torch.distributed.checkpoint. By default, if weights are DTensors.
        requeue: ask Slurm to start the job again, where this is a batch job of it.
        objects: whatever has `state_dict` and `load_state_dict`, Keras models, and States of
            Horovod; by any names.

    Attributes:
        steps_done: the number of steps that have been made, before the job was interrupted, too.

    Raises:
        CheckpointError: a bad argument; at the entry, a folder that cannot be used.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        every: int = 1,
        save_every: int | None = None,
        keep: int = 2,
        signals: Iterable[int] = DEFAULT_SIGNALS,
        sharded: bool | None = None,
        requeue: bool = True,
        **objects: Any,
    ) -> None:
        for name, value in (("every", every), ("save_every", save_every), ("keep", keep)):
            if value is not None and (not isinstance(value, int) or value < 1):
                raise CheckpointError(f"{name}: expected a whole number from 1, not {value!r}")
        if not objects:
            raise CheckpointError("there is nothing to save; give model=..., optimizer=...")
        check_objects(objects)
        self.steps_done = 0
        self._folder = Path(folder).absolute()
        self._every, self._save_every, self._keep = every, save_every, keep
        self._notice = Notice(signals)
        self._sharded, self._requeue = sharded, requeue
        self._objects = objects
        self._ranks: Ranks = Alone()
        self._asked: bool | None = None  # by `average`, in this step
        self._position: batches.Position | None = None
        self._next: batches.Position | None = None  # once this step is done
        self._saved_at: int | None = None
        self._random: dict[str, Any] | None = None  # of the checkpoint, until it is in force
        self._lock: BinaryIO | None = None
        self._is_open = False

    def __enter__(self) -> Checkpointer:
        try:
            self._notice.__enter__()
            self._ranks = find_ranks()
            if self._sharded is None:
                self._sharded = sharded.is_sharded(self._objects)
            collect(self._ranks, self._open)
            self._resume()
            self._is_open = True
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None and self.steps_done != self._saved_at:
                self.save()
            if kind is None:
                self._ranks.close()
        finally:
            self.close()

    @property
    def rank(self) -> int:
        """This rank's number, once it is entered."""
        return self._ranks.rank

    @property
    def size(self) -> int:
        """The number of ranks, once it is entered."""
        return self._ranks.size

    def steps(self, total: int) -> Iterator[int]:
        """The numbers of the steps that are left, up to `total`; call `step` after each.

        Raises:
            CheckpointError: the loop has not called `step`.
        """
        while self.steps_done < total:
            before = self.steps_done
            yield before
            self._check_step(before)

    def batches(self, loader: Any, epochs: int) -> Iterator[Any]:
        """The batches that are left of some epochs; call `step` after each.

        Args:
            loader: a torch DataLoader. Its order of batches must be the same in each run: with a
                DistributedSampler, whose epoch is set here, or without shuffling. With such a
                sampler, the epoch goes on with other ranks and batch sizes, too.
            epochs: in all, those before an interruption included.

        Raises:
            CheckpointError: such a loader cannot be repeated, or the loop has not called `step`.
        """
        start = self._position or batches.Position()
        course = batches.Course(loader, start, self._ranks.size)
        while course.position.epoch < epochs:
            rest, positions = course.epoch()
            if start.batches and self._random is not None:
                set_random_states(self._random)  # a new iterator has drawn a number
            self._random = None
            for batch in rest:
                before, self._next = self.steps_done, next(positions)
                yield batch
                self._check_step(before)

    def average(self, values: Any) -> Any:
        """The mean over the ranks of some numbers, with the question for signals as one more.

        In a step where all ranks call it, `step` needs no collective of its own.

        Args:
            values: a float, a NumPy array or torch tensor of floating point numbers, of any shape.

        Returns:
            The mean, of the same kind.
        """
        flag = float(self._notice.got is not None)
        if isinstance(values, int | float):
            total = self._ranks.sum(np.array([float(values), flag]))
            self._asked = bool(total[-1] > 0)
            return float(total[0]) / self._ranks.size
        if isinstance(values, np.ndarray):
            sent = np.append(values.reshape(-1), values.dtype.type(flag))
        else:
            sent = values.new_full((values.numel() + 1,), flag)
            sent[:-1] = values.detach().reshape(-1)
        total = self._ranks.sum(sent)
        self._asked = bool(total[-1] > 0)
        return (total[:-1] / self._ranks.size).reshape(values.shape)

    def step(self) -> None:
        """Count a step of training; save if it is time, or if a rank has got a signal.

        After a signal, all ranks end by SystemExit with `EXIT_PREEMPTED`.

        Raises:
            CheckpointError: it could not be saved; the checkpoints before are still there.
        """
        self._check_open()
        self.steps_done += 1
        self._position, self._next = self._next or self._position, None
        asked, self._asked = self._asked, None
        if asked is None:
            is_due = self.steps_done % self._every == 0
            asked = is_due and self._ranks.any(self._notice.got is not None)
        if asked:
            self.save()
            self._leave()
        elif self._save_every and self.steps_done % self._save_every == 0:
            self.save()

    def save(self) -> None:
        """Save now; all ranks call it after the same step.

        Raises:
            CheckpointError: as `step`.
        """
        self._check_open()
        shards, others = self._parts()
        with patient():
            writing.write(
                *(self._folder, self._ranks, shards, others),
                step=self.steps_done,
                position=self._position,
                keep=self._keep,
            )
        self._saved_at = self.steps_done

    def _check_open(self) -> None:
        if not self._is_open:
            raise CheckpointError("use it as `with Checkpointer(...) as saver:`")

    def _check_step(self, before: int) -> None:
        if self.steps_done == before:
            raise CheckpointError("call `saver.step()` at the end of each step of the loop")

    def _open(self) -> None:
        if self._ranks.rank == 0:
            self._lock = store.open_store(self._folder)

    def _resume(self) -> None:
        found = reading.read(self._folder, self._ranks, *self._parts())
        if found is None:
            return
        self.steps_done = self._saved_at = found.step
        self._position, self._random = found.position, found.random
        if self._random is not None:
            set_random_states(self._random)

    def _parts(self) -> tuple[Objects, Objects]:
        """What is saved in shards, and what the first rank saves."""
        return sharded.split(self._objects) if self._sharded else ({}, self._objects)

    def close(self) -> None:
        """Give up the folder and the signals, without saving; a second call does nothing."""
        self._is_open = False
        self._notice.__exit__()
        if self._lock is not None:
            store.close_store(self._lock)
            self._lock = None

    def _leave(self) -> None:
        def ask() -> None:
            if self._ranks.rank:
                return
            say(
                f"saved after step {self.steps_done} in {self._folder}; ending with exit code "
                f"{EXIT_PREEMPTED}, to be started again"
            )
            said = requeue() if self._requeue else ""
            if said:
                say(said)

        collect(self._ranks, ask)  # ddlrun ends a job of which a rank has gone: all wait
        self._ranks.close()
        raise SystemExit(EXIT_PREEMPTED)
