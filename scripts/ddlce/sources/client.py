"""Running a client that fetches a source: pip, apt, or one of our own.

A client leaves the file in the folder that it is given; checking the bytes is the store's task.
A client asks once and says, by `DownloadError.again`, whether asking again can help; `fetch.py`
asks again after `BACKOFF_S`.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Event

from ddlce.errors import MachineError
from ddlce.locks import locked

POLL_S = 0.1
#: Seconds before the second, third and fourth try of a download, which `fetch.py` makes.
BACKOFF_S = (1.0, 4.0, 10.0)

#: Called with the bytes that have arrived so far.
OnBytes = Callable[[int], None]


class DownloadError(Exception):
    """A client did not deliver.

    Args:
        reason: for the user, one or two lines.
        again: whether the same call may succeed later (the network, not the request). `fetch.py`
            then makes it.
    """

    def __init__(self, reason: str, again: bool = True) -> None:
        super().__init__(reason)
        self.reason = reason
        self.again = again


class Cancelled(Exception):
    """Another download failed for good, or the user interrupted."""


@contextlib.contextmanager
def locked_until(path: Path, stop: Event) -> Iterator[None]:
    """`locks.locked`, in a thread that must end when the user says so: nothing ends a flock.

    Raises:
        Cancelled: `stop` was set while another process had the lock.
    """
    with contextlib.ExitStack() as stack:
        while True:
            try:
                stack.enter_context(locked(path, wait=False))
                break
            except BlockingIOError:
                if stop.wait(POLL_S):
                    raise Cancelled from None
        yield


def run_client(
    command: Sequence[str],
    folder: Path,
    report: OnBytes,
    stop: Event,
    env: dict[str, str] | None = None,
) -> str:
    """Run a client that writes below `folder`; returns what it printed.

    Progress is the size of what it has written, which no client reports in a stable way.

    Raises:
        DownloadError: the client failed; the reason is the end of its output.
        Cancelled: `stop` was set; the client has been ended.
        MachineError: the program is missing, or the disk is full.
    """
    log = folder / ".log"
    with log.open("wb") as stream:
        try:
            process = subprocess.Popen(
                command, stdout=stream, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=env
            )
        except FileNotFoundError:
            raise MachineError(f"{command[0]}: no such program on this machine") from None
        try:
            while process.poll() is None:
                if stop.wait(POLL_S):
                    raise Cancelled
                report(size_below(folder))
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
    text = log.read_text(errors="replace")
    log.unlink()
    if process.returncode:
        if "No space left on device" in text:
            raise MachineError(
                f"no space left while downloading to {folder}",
                "free some space, or set DDLCE_CACHE to another file system",
            )
        raise DownloadError(tail(text))
    return text


def tail(text: str, lines: int = 4) -> str:
    """The last lines of a client's output that say something."""
    wanted = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in wanted if line.lower().startswith(("error", "e:", "err:"))]
    return "\n".join((errors or wanted)[-lines:]) or "the client failed and printed nothing"


def size_below(folder: Path) -> int:
    """Bytes of all files below a folder that another process may be changing."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(parent, name)).st_size  # noqa: PTH118
            except OSError:
                continue
    return total
