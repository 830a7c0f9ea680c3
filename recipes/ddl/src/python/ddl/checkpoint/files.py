"""Files of a checkpoint: written once, durable, and read only as their digest says."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TypedDict

from ddl.checkpoint.errors import CheckpointError

_BLOCK = 1 << 22


class Entry(TypedDict):
    """What a manifest says of a file."""

    bytes: int
    sha256: str


class HashedFile:
    """A new file, for this user alone; it hashes what it writes.

    Attributes:
        error: the error of the system that ended the writing, or None. torch turns it into others.
    """

    def __init__(self, path: Path) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._path = path
        self._digest, self._length = hashlib.sha256(), 0
        self.error: OSError | None = None
        self._file = os.open(path, flags, 0o600)
        try:
            os.fchmod(self._file, 0o600)  # whatever the umask
        except BaseException:
            os.close(self._file)
            raise

    def write(self, data: bytes) -> int:
        """Write all of `data`, in as many pieces as the system takes; its length."""
        view = memoryview(data).cast("B")
        try:
            done = 0
            while done < len(view):
                done += os.write(self._file, view[done:])
        except OSError as error:
            self.error = OSError(error.errno, error.strerror, str(self._path))
            raise self.error from None
        self._digest.update(view)
        self._length += len(view)
        return len(view)

    def flush(self) -> None:
        """Do nothing: `finish` makes it durable."""

    def finish(self) -> Entry:
        """Make it durable; what the manifest says of it."""
        try:
            os.fsync(self._file)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self._path)) from None
        return {"bytes": self._length, "sha256": self._digest.hexdigest()}

    def close(self) -> None:
        """Give the file back."""
        os.close(self._file)


def write_file(path: Path, data: bytes) -> Entry:
    """Write a new durable file; what the manifest says of it."""
    file = HashedFile(path)
    try:
        file.write(data)
        return file.finish()
    finally:
        file.close()


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def digest_file(path: Path) -> Entry:
    """Make a file durable that another library has written; what the manifest says of it."""
    digest, length = hashlib.sha256(), 0
    with path.open("rb") as file:
        os.fsync(file.fileno())
        while block := file.read(_BLOCK):
            digest.update(block)
            length += len(block)
    return {"bytes": length, "sha256": digest.hexdigest()}


def open_folder(path: Path) -> int:
    """Open a folder that must be ours; a file descriptor.

    Raises:
        CheckpointError: it is a link, no folder, or another user's.
    """
    try:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise CheckpointError(f"it cannot be opened as a folder ({error.strerror})") from None
    try:
        if os.fstat(folder).st_uid != os.geteuid():
            raise CheckpointError("it belongs to another user, who could have put anything there")
    except BaseException:
        os.close(folder)
        raise
    return folder


def read_file(folder: int, name: str, entry: Entry | None = None) -> bytes:
    """Read a file of an open folder.

    Args:
        folder: from `open_folder`.
        entry: what the manifest says of it.

    Raises:
        CheckpointError: it is missing, unreadable, or not what the manifest says.
    """
    try:
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        with os.fdopen(file, "rb") as stream:
            data = stream.read()
    except OSError as error:
        raise CheckpointError(f"{name}: {error.strerror}") from None
    if entry and len(data) != entry["bytes"]:
        raise CheckpointError(f"{name} has {len(data)} bytes, not {entry['bytes']}")
    if entry and hashlib.sha256(data).hexdigest() != entry["sha256"]:
        raise CheckpointError(f"{name} has not the digest that the manifest says")
    return data


def check_file(folder: int, name: str, entry: Entry) -> None:
    """Check a file by its size and digest, in little memory; the errors of `read_file`."""
    digest, length = hashlib.sha256(), 0
    try:
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        with os.fdopen(file, "rb", buffering=0) as stream:
            while block := stream.read(_BLOCK):
                digest.update(block)
                length += len(block)
    except OSError as error:
        raise CheckpointError(f"{name}: {error.strerror}") from None
    if length != entry["bytes"]:
        raise CheckpointError(f"{name} has {length} bytes, not {entry['bytes']}")
    if digest.hexdigest() != entry["sha256"]:
        raise CheckpointError(f"{name} has not the digest that the manifest says")
