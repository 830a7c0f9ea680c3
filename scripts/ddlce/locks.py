"""Locks between processes, and folders for a while that are their process's own."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import glob
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from ddlce.errors import MachineError
from ddlce.files import explain_os_errors, is_at, is_shared, make_folder
from ddlce.filesystem import no_locks


@contextlib.contextmanager
def locked(path: Path, wait: bool = True, passing: bool = False) -> Iterator[None]:
    """Hold an exclusive lock on the file `path` (made if absent).

    The kernel drops the lock when the process ends, however it ends. Whoever can open a file can
    lock it, for reading too: so nobody can who could not make the change that it is for.

    The package filelock is not used: it polls instead of waiting in the kernel's queue, so that
    processes which come later go first. It also leaves an older lock its mode, with which readers
    could hold it, and makes marker files by default where the kernel has no locks.

    Args:
        wait: for whoever holds it.
        passing: the file is removed at the end, by its holder alone.

    Raises:
        BlockingIOError: another process holds it, and `wait` is false.
    """
    while True:
        stream = _open_lock(path)
        with stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except OSError as error:
                if error.errno not in (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP):
                    raise
                raise MachineError(
                    no_locks(path.parent, error),
                    "choose a folder on another one, with DDLCE_CACHE or --root",
                ) from error
            if not is_at(stream.fileno(), path):
                continue  # since it was opened, its holder has removed it
            try:
                yield
            finally:
                if passing:
                    with contextlib.suppress(OSError):  # one that stays is in nobody's way
                        path.unlink()
            return


def _open_lock(path: Path) -> IO[bytes]:
    with explain_os_errors(path):
        make_folder(path.parent)
        mode = 0o660 if is_shared(path.parent) else 0o600
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        handle = os.open(path, flags, mode)
        try:
            status = os.fstat(handle)
            if status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) != mode:
                os.fchmod(handle, mode)
        except BaseException:
            os.close(handle)
            raise
    return os.fdopen(handle, "r+b", buffering=0)


@contextlib.contextmanager
def scratch(parent: Path, prefix: str) -> Iterator[Path]:
    """A new folder below `parent`, until the block's end; those of killed runs are removed.

    Args:
        parent: the user's own.
        prefix: how its name begins.
    """
    with explain_os_errors(parent):
        make_folder(parent)
        with locked(parent / f"{prefix}lock"):
            for left in parent.glob(f"{glob.escape(prefix)}*/"):
                _remove_left(left)
            folder = Path(tempfile.mkdtemp(dir=parent, prefix=prefix))
            handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
            fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


def _remove_left(folder: Path) -> None:
    """Remove a scratch folder whose process has ended, unless its owner has just done so."""
    with contextlib.suppress(FileNotFoundError):
        handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            with contextlib.suppress(BlockingIOError):  # its process works
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
        finally:
            os.close(handle)
