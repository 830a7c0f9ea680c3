"""Files that are never half-written, hashes, and locks between processes.

Modes are ours, not the umask's: folders and files are for everybody to read, locks are not. Where
a folder belongs to a group of administrators (set-gid and writable by its group), what is made in
it does too: folders are writable by the group, and so are locks.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ddlce.errors import MachineError
from ddlce.filesystem import no_locks
from ddlce.ownership import closed_to_us

#: Of a folder that a group of administrators shares.
SHARED = stat.S_ISGID | stat.S_IWGRP


def is_shared(folder: Path) -> bool:
    """Whether a group of administrators shares the folder."""
    return folder.stat().st_mode & SHARED == SHARED


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, unless they are there, with the modes described above."""
    try:
        _make_one(folder)
    except FileNotFoundError:
        make_folder(folder.parent)
        _make_one(folder)


def _make_one(folder: Path) -> None:
    try:
        folder.mkdir(0o755)
    except FileExistsError:
        if not folder.is_dir():
            raise
    else:
        above = folder.parent.stat().st_mode
        folder.chmod(0o755 | (above & SHARED if is_shared(folder.parent) else 0))


def sha256_file(path: Path) -> str:
    """Hex sha256 of a file's bytes."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def write_atomic(path: Path, data: str | bytes, mode: int = 0o644) -> None:
    """Write `data` beside `path`, then rename: a reader sees the old file or the new one."""
    with explain_os_errors(path):
        make_folder(path.parent)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(data.encode() if isinstance(data, str) else data)
            Path(name).chmod(mode)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


def link_atomic(link: Path, text: str) -> None:
    """Make `link` a symbolic link that says `text`, in one step."""
    with explain_os_errors(link):
        partial = link.with_name(f".{link.name}.{os.getpid()}")
        partial.unlink(missing_ok=True)
        partial.symlink_to(text)
        partial.replace(link)


def link_or_copy(source: Path, target: Path) -> None:
    """Hard-link `source` to `target` where the file system allows, else copy; atomic."""
    with explain_os_errors(target):
        make_folder(target.parent)
        partial = target.with_name(f".{target.name}.{os.getpid()}")
        partial.unlink(missing_ok=True)
        try:
            partial.hardlink_to(source)
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP):
                raise
            shutil.copyfile(source, partial)
            partial.chmod(0o644)
        partial.replace(target)


@contextlib.contextmanager
def locked(path: Path, wait: bool = True) -> Iterator[None]:
    """Hold an exclusive lock on the file `path` (made if absent).

    The kernel drops the lock when the process ends, however it ends. Whoever can open a file can
    lock it, for reading too: so nobody can who could not make the change that it is for.

    The package filelock is not used: it polls instead of waiting in the kernel's queue, so that
    processes which come later go first. It also leaves an older lock its mode, with which readers
    could hold it, and makes marker files by default where the kernel has no locks.

    Raises:
        BlockingIOError: another process holds it, and `wait` is false.
    """
    with explain_os_errors(path):
        make_folder(path.parent)
        mode = 0o660 if is_shared(path.parent) else 0o600
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        stream = os.fdopen(os.open(path, flags, mode), "r+b", buffering=0)
    with stream:
        status = os.fstat(stream.fileno())
        if status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) != mode:
            os.fchmod(stream.fileno(), mode)
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError as error:
            if error.errno not in (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP):
                raise
            raise MachineError(
                no_locks(path.parent, error),
                "choose a folder on another one, with DDLCE_CACHE or --root",
            ) from error
        yield


@contextlib.contextmanager
def explain_os_errors(path: Path) -> Iterator[None]:
    """Turn an error of the system while writing `path` into a message that names it."""
    try:
        yield
    except OSError as error:
        raise explain_os_error(error, path) from error


def explain_os_error(error: OSError, path: Path | None = None) -> MachineError:
    """What an error of the operating system means, and what to do.

    Args:
        error: of any kind; not all of them name a file.
        path: what was being written; without it, the file that the error names is meant.
    """
    name = error.filename if error.filename2 is None else error.filename2
    subject = path or name
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return MachineError(
            f"no space left while writing {subject or 'a file'}",
            "free some space, or set DDLCE_CACHE / --root to another file system",
        )
    if subject is None:
        return MachineError(
            f"the system says: {error.strerror or error}",
            "check that the current folder is still there, and what this command was given",
        )
    problem = f"cannot {'write' if path else 'use'} {subject}"
    obstacle = _obstacle(error)
    if obstacle is not None:
        # pathlib's `exists` raises where a folder may not be searched.
        kind = "a file" if os.path.exists(obstacle) else "a link to nothing"  # noqa: PTH110
        return MachineError(
            f"{problem}: {obstacle} is {kind}, not a folder",
            "choose another folder (DDLCE_CACHE, --root, or the option that named this one), or "
            "move what is in the way",
        )
    if error.errno == errno.ELOOP:
        return MachineError(f"{problem}: it is a symbolic link", "find out whose, and remove it")
    if error.errno == errno.EISDIR:
        return MachineError(f"{problem}: it is a folder", "name a file, or move the folder away")
    if error.errno in (errno.EACCES, errno.EROFS, errno.EPERM) and path:
        return MachineError(
            f"{problem}: {os.strerror(error.errno)}",
            "choose a folder that you may write, with DDLCE_CACHE or --root",
        )
    if error.errno == errno.EACCES and (why := closed_to_us(Path(os.fsdecode(subject)))):
        return MachineError(
            f"{problem}: {why}",
            "ask for it to be opened (chmod -R a+rX), or name another one",
        )
    other = f": {error.filename}" if error.filename not in (None, str(subject)) else ""
    return MachineError(
        f"{problem}: {error.strerror or error}{other}",
        "check that it is there and yours to use, and DDLCE_CACHE, --root and the other options",
    )


def _obstacle(error: OSError) -> Path | None:
    """The file, or the link to nothing, that stands where a folder must be."""
    names = [Path(str(name)) for name in (error.filename, error.filename2) if name is not None]
    places = [place for name in names for place in reversed(name.parents)]
    # Of a copy or a rename, the last name may well be a file that exists.
    if error.errno == errno.ENOTDIR or (error.errno == errno.EEXIST and len(names) == 1):
        places += names[-1:]
    elif error.errno != errno.ENOENT:
        return None
    for place in places:
        if os.path.lexists(place) and not os.path.isdir(place):  # noqa: PTH112 - see above
            return place
    return None
