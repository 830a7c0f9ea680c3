"""Saves a training program at a step on which all ranks agree, and goes on from there."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from ddl.checkpoint import batches, codec, sharded, store
from ddl.checkpoint.errors import CheckpointError, say
from ddl.checkpoint.files import Entry, check_file, open_folder, read_file
from ddl.checkpoint.ranks import Alone, Ranks, collect, find_ranks, patient, words_of
from ddl.checkpoint.signals import Notice
from ddl.checkpoint.slurm import requeue
from ddl.checkpoint.state import (
    check_objects,
    load_state,
    random_states,
    set_random_states,
    state_of,
)

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
        signals: Iterable[int] = (signal.SIGUSR1, signal.SIGTERM),
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
        self._saved_at: int | None = None
        self._random: dict[str, Any] | None = None  # of the checkpoint, until it is in force
        self._lock = -1
        self._is_open = False

    def __enter__(self) -> Checkpointer:
        self._ranks = find_ranks()
        if self._sharded is None:
            self._sharded = sharded.is_sharded(self._objects)
        self._notice.__enter__()
        try:
            collect(self._ranks, self._open)
            self._resume()
        except BaseException:
            self._close()
            raise
        self._is_open = True
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
        finally:
            self._close()

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
                DistributedSampler, whose epoch is set here, or without shuffling.
            epochs: in all, those before an interruption included.

        Raises:
            CheckpointError: such a loader cannot be repeated, or the loop has not called `step`.
        """
        batches.check_loader(loader)
        length = len(loader)
        while self.steps_done < epochs * length:
            epoch, skipped = divmod(self.steps_done, length)
            rest = batches.epoch_of(loader, epoch, skipped)
            if skipped and self._random is not None:
                set_random_states(self._random)  # a new iterator has drawn a number
            self._random = None
            for batch in rest:
                before = self.steps_done
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
        if not self._is_open:
            raise CheckpointError("use it as `with Checkpointer(...) as saver:`")
        self.steps_done += 1
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
        with patient():
            self._save()
        self._saved_at = self.steps_done

    def _check_step(self, before: int) -> None:
        if self.steps_done == before:
            raise CheckpointError("call `saver.step()` at the end of each step of the loop")

    def _open(self) -> None:
        if self._ranks.rank == 0:
            self._lock = store.open_store(self._folder)

    def _close(self) -> None:
        self._is_open = False
        self._notice.__exit__()
        if self._lock >= 0:
            store.close_store(self._lock)
            self._lock = -1

    # ---- saving

    def _save(self) -> None:
        is_first = self._ranks.rank == 0

        def begin() -> str:
            return store.begin(self._folder, self.steps_done) if is_first else ""

        name = collect(self._ranks, begin)[0]
        path = self._folder / name
        try:
            if self._sharded:
                self._save_shards(path)
            files: dict[str, Entry] = {}
            for entries in collect(self._ranks, lambda: self._write(path)):
                files.update(entries)
            manifest = store.Manifest(
                step=self.steps_done,
                ranks=self._ranks.size,
                sharded=bool(self._sharded),
                files=files,
            )
            collect(self._ranks, lambda: self._commit(name, manifest))
        except BaseException:
            if is_first:
                store.discard(self._folder, name)
            raise

    def _save_shards(self, path: Path) -> None:
        shards, _ = sharded.split(self._objects)
        trouble: Exception | None = None
        try:
            sharded.save(path, shards)
        except (OSError, CheckpointError) as error:
            trouble = error

        def tell() -> None:
            if trouble:
                raise CheckpointError(words_of(trouble))

        collect(self._ranks, tell)

    def _write(self, path: Path) -> dict[str, Entry]:
        """This rank's files: its random numbers; of the first rank, the state of the objects."""
        rank, end = self._ranks.rank, codec.suffix()
        files = sharded.written(path, rank) if self._sharded else {}
        name = f"rank-{rank}{end}"
        files[name] = codec.write_state(path / name, random_states())
        if rank == 0:
            objects = sharded.split(self._objects)[1] if self._sharded else self._objects
            state = {name: state_of(thing) for name, thing in objects.items()}
            files[f"state{end}"] = codec.write_state(path / f"state{end}", state)
        return files

    def _commit(self, name: str, manifest: store.Manifest) -> None:
        if self._ranks.rank == 0:
            final = store.commit(self._folder, name, manifest)
            store.prune(self._folder, self._keep, final.name)

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
        raise SystemExit(EXIT_PREEMPTED)

    # ---- going on

    def _resume(self) -> None:
        is_first = self._ranks.rank == 0
        names = collect(self._ranks, lambda: store.candidates(self._folder) if is_first else [])[0]
        for name in names:
            troubles = self._troubles(name)
            if not troubles:
                self._load(name)
                return
            if is_first:
                say(f"passed over {self._folder / name}: {troubles[0]}")
        if names and is_first:
            say(f"no complete checkpoint is in {self._folder}; training begins at step 0")

    def _troubles(self, name: str) -> list[str]:
        """What is wrong with a checkpoint. The ranks share the reading of its files."""
        path, rank, size = self._folder / name, self._ranks.rank, self._ranks.size

        def look() -> str:
            try:
                manifest = store.read_manifest(path)
                store.check_sizes(path, manifest)
                folder = open_folder(path)
                try:
                    for file, entry in sorted(manifest["files"].items())[rank::size]:
                        check_file(folder, file, entry)
                finally:
                    os.close(folder)
            except CheckpointError as error:
                return str(error)
            return ""

        return [text for text in collect(self._ranks, look) if text]

    def _load(self, name: str) -> None:
        path = self._folder / name
        collect(self._ranks, lambda: self._load_own(path))
        manifest = store.read_manifest(path)
        if manifest["sharded"]:
            sharded.load(path, sharded.split(self._objects)[0])
        self.steps_done = self._saved_at = manifest["step"]
        if self._random is not None:
            set_random_states(self._random)
        if self._ranks.rank == 0:
            say(f"goes on after step {self.steps_done}, from {path}")

    def _load_own(self, path: Path) -> None:
        manifest = store.read_manifest(path)
        if manifest["sharded"] != bool(self._sharded):
            kind = "sharded" if manifest["sharded"] else "not sharded"
            raise CheckpointError(f"{path}: its model is {kind}, unlike this program's")
        objects = sharded.split(self._objects)[1] if self._sharded else self._objects
        folder = open_folder(path)
        try:
            state = self._read(folder, manifest, "state")
            with suppress(KeyError):  # of a rank that there was not
                self._random = self._read(folder, manifest, f"rank-{self._ranks.rank}")
        finally:
            os.close(folder)
        if set(state) != set(objects):
            raise CheckpointError(
                f"{path}: it holds {', '.join(sorted(state))}, and the program saves "
                f"{', '.join(sorted(objects))}; give another folder"
            )
        for name, thing in objects.items():
            load_state(name, thing, state[name])

    def _read(self, folder: int, manifest: store.Manifest, stem: str) -> Any:
        names = [name for name in manifest["files"] if Path(name).stem == stem]
        if not names:
            raise KeyError(stem)
        return codec.read_state(names[0], read_file(folder, names[0], manifest["files"][names[0]]))
