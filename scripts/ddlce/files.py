"""Files that are never half-written, hashes, and locks between processes."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ddlce.errors import DdlceError, MachineError


def sha256_file(path: Path) -> str:
    """Hex sha256 of a file's bytes."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def write_atomic(path: Path, data: str | bytes, mode: int = 0o644) -> None:
    """Write `data` beside `path`, then rename: a reader sees the old file or the new one."""
    with explain_os_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(data.encode() if isinstance(data, str) else data)
            Path(name).chmod(mode)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


def link_or_copy(source: Path, target: Path) -> None:
    """Hard-link `source` to `target` where the file system allows, else copy; atomic."""
    with explain_os_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(f".{target.name}.{os.getpid()}")
        partial.unlink(missing_ok=True)
        try:
            partial.hardlink_to(source)
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP):
                raise
            shutil.copyfile(source, partial)
        partial.replace(target)


@contextlib.contextmanager
def locked(path: Path, wait: bool = True) -> Iterator[None]:
    """Hold an exclusive lock on the file `path` (made if absent).

    The kernel drops the lock when the process ends, however it ends.

    Raises:
        BlockingIOError: another process holds it, and `wait` is false.
    """
    with explain_os_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        stream = path.open("a")
    with stream:
        fcntl.flock(stream, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield


@contextlib.contextmanager
def explain_os_errors(path: Path) -> Iterator[None]:
    """Turn a full disk or a read-only target into a message that names the path."""
    try:
        yield
    except DdlceError:
        raise
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise MachineError(
                f"no space left while writing {path}",
                "free some space, or set DDLCE_CACHE / --root to another file system",
            ) from error
        if error.errno in (errno.EACCES, errno.EROFS, errno.EPERM):
            raise MachineError(
                f"cannot write {path}: {os.strerror(error.errno)}",
                "choose a folder that you may write, with DDLCE_CACHE or --root",
            ) from error
        raise
