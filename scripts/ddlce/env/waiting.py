"""A lock that says so when somebody else holds it."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Callable, Iterator
from pathlib import Path

from ddlce.files import locked


@contextlib.contextmanager
def waiting_lock(path: Path, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
    """`files.locked`, but call `on_wait` once first when the lock is held by another process."""
    if on_wait and _is_held(path):
        on_wait()
    with locked(path):
        yield


def _is_held(path: Path) -> bool:
    try:
        with path.open() as stream:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # no such file yet, or not ours to open: `locked` finds out and says
        return False
    return False
