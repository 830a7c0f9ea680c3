"""Our standard input, for rank 0: passed on no faster than its program reads.

mpiexec's proxy gives up the whole job when the pipe to rank 0 is full. So rank 0's wrapper
(rank.py) first says how much that pipe holds, then how much its program has taken. Never more is
under way.
"""

import os
import sys
from typing import IO

from ddl.launch.awake import now

PAUSE = 1.0  # seconds until we look again whether a terminal's input is for us


class Input:
    """The way from file 0 to mpiexec. `is_open` until there is no more to pass on."""

    def __init__(self) -> None:
        self._sink: IO[bytes] | None = None
        self._credit = 0
        self._not_before = 0.0
        self.is_open = sys.stdin is not None and _is_ours()

    def connect(self, sink: IO[bytes]) -> None:
        """Takes the pipe to mpiexec."""
        self._sink = sink

    def allow(self, size: int) -> None:
        """Rank 0 can take `size` bytes more."""
        self._credit += size

    def waits_until(self) -> float | None:
        """The moment from which file 0 is to be looked at; None: not at all for now."""
        return self._not_before if self.is_open and self._credit > 0 else None

    def move(self) -> None:
        """Passes on the available input; to be called when file 0 can be read."""
        if not _is_ours():  # the job was put into the background
            self._not_before = now() + PAUSE
            return
        try:
            data = os.read(0, min(self._credit, 1 << 16))
            if data and self._sink:
                os.write(self._sink.fileno(), data)
        except BlockingIOError:
            return
        except OSError:  # our terminal is gone, or mpiexec
            data = b""
        self._credit -= len(data)
        if not data:
            self.close()

    def close(self) -> None:
        """The end of the input, for mpiexec too."""
        self.is_open = False
        if self._sink:
            self._sink.close()
            self._sink = None


def _is_ours() -> bool:
    """Whether there is an input; in the background a terminal's is not for us."""
    try:
        return not os.isatty(0) or os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False
