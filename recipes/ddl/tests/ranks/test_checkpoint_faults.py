"""A save or a load that an error, an interrupt or a kill ends at any point, in one process.

The store is then as before, or has the new state whole; and it can be used at once.
"""

from __future__ import annotations

import errno
import functools
import itertools
import os
import random
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

import numpy as np
import pytest
from ddl.checkpoint import Checkpointer, CheckpointError, store

CALLS = (
    *("open", "close", "write", "fsync", "fchmod", "chmod", "mkdir", "rename", "stat", "fstat"),
    *("lstat", "scandir", "listdir", "unlink", "rmdir", "urandom"),
)
SOURCES = str(Path(store.__file__).parent)
SAVED = 10
"""The newest step that every store has already."""


class Values:
    def __init__(self) -> None:
        self.values = np.zeros(100)

    def state_dict(self) -> dict[str, Any]:
        return {"values": self.values, "sum": float(self.values.sum())}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        assert state["sum"] == state["values"].sum()
        self.values = state["values"]


class Faults:
    """Does something to the `number`th call into the system, and counts them all."""

    def __init__(self, number: int, trouble: Callable[[], None]) -> None:
        self.number, self.trouble, self.count = number, trouble, 0

    def _call(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.count += 1
        if self.count == self.number:
            if original.__name__ == "close":  # the kernel closes it, whatever it says
                original(*args, **kwargs)
            self.trouble()
        return original(*args, **kwargs)

    @contextmanager
    def during(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for name in CALLS:
                original = getattr(os, name)
                patch.setattr(os, name, functools.partial(self._call, original))
            yield


class Interrupts:
    """Raises KeyboardInterrupt at the `number`th line of ours, and counts them all."""

    def __init__(self, number: int) -> None:
        self.number, self.count = number, 0

    def _line(self, frame: FrameType, event: str, _: object) -> Any:
        if event == "line":
            self.count += 1
            if self.count == self.number:
                raise KeyboardInterrupt
        return self._line

    def _enter(self, frame: FrameType, event: str, _: object) -> Any:
        return self._line if frame.f_code.co_filename.startswith(SOURCES) else None

    @contextmanager
    def during(self) -> Iterator[None]:
        sys.settrace(self._enter)
        try:
            yield
        finally:
            sys.settrace(None)


def fail(code: int) -> None:
    raise OSError(code, os.strerror(code))


def kill() -> None:
    os._exit(9)


def interrupt() -> None:
    raise KeyboardInterrupt


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock that is left behind is told at once."""
    monkeypatch.setattr(store, "_LOCK_TIMEOUT_S", 0.0)


def reached(folder: Path) -> tuple[int, float]:
    """The step and the value that a new program finds."""
    values = Values()
    with Checkpointer(folder, values=values) as saver:
        return saver.steps_done, float(values.values[0])


@pytest.fixture
def stores() -> Iterator[Callable[[], Path]]:
    """Makes folders with checkpoints of steps 5 and 10, in memory where there is such a place."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if memory.is_dir() else None) as name:
        first = Path(name) / "0"
        values = Values()
        with Checkpointer(first, values=values) as saver:
            for step in saver.steps(SAVED):
                values.values += 1
                saver.step()
                if step == SAVED // 2 - 1:
                    saver.save()
        numbers = itertools.count(1)

        def make() -> Path:
            return Path(shutil.copytree(first, Path(name) / str(next(numbers))))

        yield make


def save(folder: Path, again: bool, fault: Faults | Interrupts) -> bool:
    """Save another value, of the same step again or of the next; whether it says that it has."""
    values = Values()
    with Checkpointer(folder, values=values, keep=1) as saver:
        values.values += 0.5
        if not again:
            saver.step()
        try:
            with fault.during():
                saver.save()
        except (CheckpointError, KeyboardInterrupt):
            return False
        finally:
            saver._saved_at = saver.steps_done  # the program ends without another try
    return True


def handles() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def check(folder: Path, again: bool, said: bool) -> None:
    new = (SAVED, SAVED + 0.5) if again else (SAVED + 1, SAVED + 0.5)
    assert reached(folder) in ([new] if said else [new, (SAVED, SAVED)])
    left = [path.name for path in folder.iterdir()]
    assert all(name == ".lock" or name.startswith("step-") for name in left), left


TROUBLES = {
    "no space": functools.partial(fail, errno.ENOSPC),
    "input or output": functools.partial(fail, errno.EIO),
    "interrupt": interrupt,
}


def load(folder: Path, fault: Faults | Interrupts) -> None:
    saver = Checkpointer(folder, values=Values())
    try:
        with fault.during():
            saver.__enter__()
        saver.__exit__(None, None, None)
    except (CheckpointError, KeyboardInterrupt):
        pass


def handlers() -> list[object]:
    return [signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGTERM)]


both = pytest.mark.parametrize("again", [False, True], ids=["next step", "same step"])
every = pytest.mark.parametrize("trouble", TROUBLES)


@both
@every
def test_a_save_fails_at_any_call(stores: Callable[[], Path], trouble: str, again: bool) -> None:
    before = handles()
    for number in itertools.count(1):
        folder, fault = stores(), Faults(number, TROUBLES[trouble])
        said = save(folder, again, fault)
        check(folder, again, said)
        assert handles() == before, number
        if fault.count < number:
            break
    assert number > 20


@both
def test_a_program_is_killed_at_any_call_of_a_save(stores: Callable[[], Path], again: bool) -> None:
    for number in itertools.count(1):
        folder = stores()
        child = os.fork()
        if not child:
            save(folder, again, Faults(number, kill))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        check(folder, again, said=status == 0)
        if status == 0:
            break
    assert number > 20


@every
def test_a_load_fails_at_any_call(stores: Callable[[], Path], trouble: str) -> None:
    folder, before = stores(), (handles(), handlers())
    for number in itertools.count(1):
        fault = Faults(number, TROUBLES[trouble])
        load(folder, fault)
        assert (handles(), handlers()) == before, number
        assert reached(folder) == (SAVED, SAVED), number
        if fault.count < number:
            break
    assert number > 10


def lines(work: Callable[[Interrupts], object]) -> list[int]:
    """Some lines of ours that `work` passes, by chance."""
    counter = Interrupts(0)
    work(counter)
    assert counter.count > 100
    return random.sample(range(1, counter.count + 1), 60)


@both
def test_a_save_is_interrupted_at_any_line(stores: Callable[[], Path], again: bool) -> None:
    for number in lines(lambda it: save(stores(), again, it)):
        folder = stores()
        said = save(folder, again, Interrupts(number))
        check(folder, again, said)


def test_a_load_is_interrupted_at_any_line(stores: Callable[[], Path]) -> None:
    folder, before = stores(), handlers()
    for number in lines(lambda it: load(folder, it)):
        load(folder, Interrupts(number))
        assert handlers() == before, number
        assert reached(folder) == (SAVED, SAVED), number
