"""Files that are never half-written, and hashes.

What is written outlives a loss of power: first the files are on the disk, then the folders, then
the name. `on_disk_at_end` does that once for all files of a stage.

Modes are ours, not the umask's: folders and files are for everybody to read, locks are not. Where
a folder belongs to a group of administrators (set-gid and writable by its group), what is made in
it does too: folders are writable by the group, and so are locks.
"""

from __future__ import annotations

import contextlib
import contextvars
import ctypes
import errno
import fcntl
import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from ddlce.errors import MachineError
from ddlce.ownership import closed_to_us

#: Of a folder that a group of administrators shares.
SHARED = stat.S_ISGID | stat.S_IWGRP

#: Whether this thread fills a folder that nobody reads yet, and that is synced as a whole.
_in_stage = contextvars.ContextVar("in_stage", default=False)


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


def sync_files(folder: Path) -> None:
    """Bring all files and folders of the file system that `folder` is on to the disk.

    One call for thousands of files takes a hundredth of the time that one for each takes.

    Raises:
        OSError: of the disk.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        libc = ctypes.CDLL(None, use_errno=True)  # Python has no syncfs
        if libc.syncfs(handle):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), str(folder))
    finally:
        os.close(handle)


def sync_path(path: Path) -> None:
    """Bring one file, or the names in one folder, to the disk.

    Raises:
        OSError: of the disk.
    """
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system that syncs no folders
            raise
    finally:
        os.close(handle)


@contextlib.contextmanager
def not_yet_on_disk() -> Iterator[None]:
    """In this context, the thread syncs nothing: what it writes is needed for a while only."""
    token = _in_stage.set(True)
    try:
        yield
    finally:
        _in_stage.reset(token)


@contextlib.contextmanager
def on_disk_at_end(folder: Path) -> Iterator[None]:
    """A context to fill a folder that nobody reads yet; its end brings all of it to the disk."""
    with not_yet_on_disk():
        yield
    with explain_os_errors(folder):
        sync_files(folder)


def rename_synced(old: Path, new: Path) -> None:
    """Give what is on the disk its name, and bring that to the disk, too.

    Raises:
        OSError: of the rename or the disk.
    """
    old.replace(new)
    if not _in_stage.get():
        sync_path(new.parent)


def partial_name(path: Path) -> Path:
    """The name of a file while it is written; fixed, so that a run meets what a killed one left."""
    return path.with_name(f".{path.name}.{os.geteuid()}.new")


def write_atomic(path: Path, data: str | bytes, mode: int = 0o644) -> None:
    """Write `data` beside `path`, then rename: a reader sees the old file or the new one."""
    with explain_os_errors(path):
        make_folder(path.parent)
        with _written_alone(partial_name(path)) as (partial, handle):
            os.ftruncate(handle, 0)
            rest = memoryview(data.encode() if isinstance(data, str) else data)
            while rest:
                rest = rest[os.write(handle, rest) :]
            os.fchmod(handle, mode)
            if not _in_stage.get():
                os.fsync(handle)
            rename_synced(partial, path)


@contextlib.contextmanager
def _written_alone(partial: Path) -> Iterator[tuple[Path, int]]:
    """A descriptor of `partial` that no other writer has; the caller renames or removes it."""
    with contextlib.ExitStack() as stack:
        while True:
            try:
                handle = os.open(
                    partial, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
                )
            except PermissionError:  # left read-only, or the folder is
                if not os.path.lexists(partial):
                    raise
                partial.unlink()
                continue
            closing = stack.enter_context(contextlib.ExitStack())
            closing.callback(os.close, handle)
            with contextlib.suppress(OSError):  # no locks here: the callers have one of their own
                fcntl.flock(handle, fcntl.LOCK_EX)
            if is_at(handle, partial):
                break
            closing.close()  # while we waited, its writer has renamed it
        try:
            yield partial, handle
        except BaseException:
            partial.unlink(missing_ok=True)
            raise


def link_atomic(link: Path, text: str) -> None:
    """Make `link` a symbolic link that says `text`, in one step; call it under a lock."""
    with explain_os_errors(link):
        with _made_anew(partial_name(link)) as partial:
            partial.symlink_to(text)
            rename_synced(partial, link)


@contextlib.contextmanager
def _made_anew(partial: Path) -> Iterator[Path]:
    partial.unlink(missing_ok=True)
    try:
        yield partial
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def link_or_copy(source: Path, target: Path, *, closed: bool = False) -> None:
    """Hard-link `source` to `target` where the file system allows, else copy; atomic.

    A symbolic link is followed: `target` is always a file of its own, not a name for another.
    Call it under a lock.

    Args:
        closed: link only what nobody but this user can change.
    """
    with explain_os_errors(target):
        make_folder(target.parent)
        with _made_anew(partial_name(target)) as partial:
            with source.open("rb") as stream:
                if not _link(stream, partial, closed):
                    with partial.open("xb") as copy:
                        shutil.copyfileobj(stream, copy, 1 << 20)
                        os.fchmod(copy.fileno(), 0o644)
            if not _in_stage.get():
                sync_path(partial)
            rename_synced(partial, target)
            # Of two names for one file, a rename makes none.
            partial.unlink(missing_ok=True)


def _link(stream: IO[bytes], name: Path, closed: bool) -> bool:
    """Give an open file one more name; False where that cannot be."""
    status = os.fstat(stream.fileno())
    if closed and (status.st_uid != os.geteuid() or status.st_mode & 0o022):
        return False
    try:
        # By its descriptor, so that it is the file that was looked at. With a folder's descriptor,
        # which an absolute path has no use for, Python calls linkat, which follows the link.
        os.link(
            *(f"/proc/self/fd/{stream.fileno()}", name),
            src_dir_fd=stream.fileno(),
            follow_symlinks=True,
        )
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP):
            raise
        return False
    return True


def is_at(handle: int, path: Path) -> bool:
    """Whether an open file still has this name."""
    try:
        return os.path.samestat(path.lstat(), os.fstat(handle))
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def explain_os_errors(path: Path) -> Iterator[None]:
    """Turn an error of the system while writing `path` into a message that names it."""
    try:
        yield
    except OSError as error:
        raise explain_os_error(error, path) from error


def explain_os_error(error: OSError, path: Path | None = None) -> MachineError:
    """The message for an error of the operating system: its meaning, and what to do.

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
