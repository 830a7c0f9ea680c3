"""Takes note of the signals that announce the end of a job."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from types import FrameType
from typing import Any

from ddl.checkpoint.errors import CheckpointError

#: Batch systems announce the end by these: SIGUSR1 as asked for, SIGTERM by themselves.
DEFAULT_SIGNALS = (signal.SIGUSR1, signal.SIGTERM)
#: A batch system sends these to the whole process group, data loaders included.
_HARMLESS = (signal.SIGUSR1, signal.SIGUSR2)


class Notice:
    """Whether one of some signals has come; in force as a context manager.

    Attributes:
        got: the first signal that came, or None.
    """

    def __init__(self, numbers: Iterable[int]) -> None:
        self.got: signal.Signals | None = None
        try:
            self._numbers = [signal.Signals(number) for number in numbers]
        except ValueError as error:
            raise CheckpointError(f"signals: {error}; use such as signal.SIGUSR1") from None
        self._before: dict[signal.Signals, Any] = {}
        self._process = os.getpid()

    def __enter__(self) -> Notice:
        self._process = os.getpid()
        for number in self._numbers:
            try:
                self._before[number] = signal.signal(number, self._note)
            except (OSError, ValueError) as error:  # no such handler, or not the main thread
                self.__exit__()
                raise CheckpointError(
                    f"signals: {number.name} cannot be handled here ({error}); begin in the main "
                    "thread, with signals that a program may handle"
                ) from None
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        self._before.clear()

    def _note(self, number: int, _frame: FrameType | None) -> None:
        if os.getpid() == self._process:
            self.got = self.got or signal.Signals(number)
        elif number not in _HARMLESS:  # a forked data loader must still end by SIGTERM
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
