"""A lock that says who holds it, and is not waited for without end."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from ddlce.errors import MachineError
from ddlce.locks import locked
from ddlce.ownership import user_name

#: Called once, with who holds the lock, before it is waited for.
OnWait = Callable[[str], None]

#: Longer than anything that is done under such a lock; seconds.
LOCK_TIMEOUT_S = 3600.0
POLL_S = 0.2


@contextlib.contextmanager
def waiting_lock(
    path: Path,
    on_wait: OnWait | None = None,
    timeout_s: float | None = None,
    passing: bool = False,
) -> Iterator[None]:
    """`locks.locked`, for as long as a person would wait.

    Args:
        on_wait: told who holds the lock, when somebody does.
        timeout_s: how long to wait; LOCK_TIMEOUT_S by default.
        passing: the file is removed at the end.

    Raises:
        MachineError: somebody holds it for longer; says who.
    """
    timeout_s = LOCK_TIMEOUT_S if timeout_s is None else timeout_s
    deadline = time.monotonic() + timeout_s
    with contextlib.ExitStack() as stack:
        waited = False
        while True:
            try:
                stack.enter_context(locked(path, wait=False, passing=passing))
                break
            except BlockingIOError:
                who = holder(path)
            if on_wait and not waited:
                on_wait(who)
            waited = True
            if time.monotonic() > deadline:
                raise MachineError(
                    f"cannot lock {path}: {who} has held it for {timeout_s:.0f} seconds",
                    "see whether that program still works, end it if not, and try again",
                )
            time.sleep(POLL_S)
        yield


def holder(path: Path) -> str:
    """Who holds the kernel's lock on a file: a process of this machine, if it is one."""
    with contextlib.suppress(OSError):
        status = path.stat()
        device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
        for line in Path("/proc/locks").read_text().splitlines():
            fields = line.split()
            if "->" in fields or fields[-3] != f"{device}:{status.st_ino}":
                continue
            process = Path("/proc", fields[-4])
            program = (process / "comm").read_text().strip()
            owner = user_name(process.stat().st_uid)
            return f"process {process.name} ({program}) of {owner}"
    return "a process that this machine does not see"
