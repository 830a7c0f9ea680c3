"""The folder of checkpoints: complete ones are found, half-written ones are not taken.

    FOLDER/step-000000000120/manifest.json   sizes and digests of the other files; written last
    FOLDER/.step-120.3f9c…                   being written, or being removed
    FOLDER/new-step-000000000120             complete, about to take an older one's place
    FOLDER/.lock                             held by the first rank of the job that uses it

A checkpoint is written into a folder of its own, made durable, and renamed. Where the step has one
already, the new one is complete before the old one goes: whenever the job is killed, one is there.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import time
from pathlib import Path
from typing import Any, BinaryIO, TypedDict

from ddl.checkpoint.errors import CheckpointError, say
from ddl.checkpoint.files import Entry, open_folder, read_file, sync_folder, write_file

MANIFEST = "manifest.json"
_NAME = re.compile(r"step-(\d{12,})")
_NEW = "new-"
_LOCK_TIMEOUT_S = 30.0
"""For the job before, which may just be ending, to give the folder up."""


class Manifest(TypedDict):
    """What a checkpoint consists of.

    Attributes:
        step: steps that were done.
        ranks: that made it.
        sharded: the model is in the files of torch.distributed.checkpoint.
        position: a `Position` of a program that goes by batches, else None.
        files: of each name, its size and digest.
    """

    step: int
    ranks: int
    sharded: bool
    position: dict[str, int] | None
    files: dict[str, Entry]


def open_store(folder: Path) -> BinaryIO:
    """Make the folder if need be, take it for this job, and clear up after a killed one.

    Returns:
        The lock, for `close_store`.

    Raises:
        CheckpointError: another job uses it.
        OSError: it cannot be made or written.
    """
    if not folder.exists():
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)  # whatever the umask
    if not folder.is_dir():
        raise CheckpointError(f"{folder}: there is a file of this name; give a folder")
    lock = _take(folder)
    try:
        discard(folder)
        _settle(folder)
    except BaseException:
        close_store(lock)
        raise
    return lock


def close_store(lock: BinaryIO) -> None:
    """Give the folder up; data loaders, which were forked, hold the lock's file open, too."""
    with contextlib.suppress(OSError):  # there may be no locks
        fcntl.flock(lock, fcntl.LOCK_UN)
    lock.close()


def _take(folder: Path) -> BinaryIO:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    lock = os.fdopen(os.open(folder / ".lock", flags, 0o600), "wb", buffering=0)
    end = time.monotonic() + _LOCK_TIMEOUT_S
    try:
        while not _has_locked(lock):
            if time.monotonic() > end:
                raise CheckpointError(
                    f"{folder}: another job saves there; end it, or give this one its own folder"
                )
            time.sleep(0.2)
    except BaseException:
        lock.close()
        raise
    return lock


def _has_locked(lock: BinaryIO) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # this file system has no locks
        pass
    return True


def candidates(folder: Path) -> list[str]:
    """The names of all checkpoints, damaged or not, newest first."""
    found = [(int(m[1]), m[0]) for path in folder.iterdir() if (m := _NAME.fullmatch(path.name))]
    return [name for _, name in sorted(found, reverse=True)]


def read_manifest(path: Path) -> Manifest:
    """Read the manifest of a checkpoint.

    Raises:
        CheckpointError: there is none, or it is damaged.
    """
    folder = open_folder(path)
    try:
        data = read_file(folder, MANIFEST)
    finally:
        os.close(folder)
    try:
        sealed = json.loads(data)
        manifest: Manifest = sealed["manifest"]
        if sealed["sha256"] != _seal(manifest) or set(manifest) != set(Manifest.__annotations__):
            raise ValueError
    except (ValueError, KeyError, TypeError):
        raise CheckpointError(f"{MANIFEST} is damaged") from None
    return manifest


def check_sizes(path: Path, manifest: Manifest) -> None:
    """Check that all files are there, with their sizes.

    Raises:
        CheckpointError: names one that is not.
    """
    for name, entry in manifest["files"].items():
        try:
            size = (path / name).lstat().st_size
        except OSError as error:
            raise CheckpointError(f"{name}: {error.strerror}") from None
        if size != entry["bytes"]:
            raise CheckpointError(f"{name} has {size} bytes, not {entry['bytes']}")


def begin(folder: Path, step: int) -> str:
    """Make the folder that a checkpoint is written into; its name."""
    name = f".step-{step}.{os.urandom(8).hex()}"
    path = folder / name
    path.mkdir(mode=0o700)
    path.chmod(0o700)
    return name


def commit(folder: Path, name: str, manifest: Manifest) -> Path:
    """Write the manifest, and give the checkpoint its name; where it is then.

    One of the same step, damaged or not, makes room when the new one is durable.
    """
    path = folder / name
    sealed = {"manifest": manifest, "sha256": _seal(manifest)}
    write_file(path / MANIFEST, json.dumps(sealed, indent=1).encode())
    sync_folder(path)
    final = folder / f"step-{manifest['step']:012d}"
    if os.path.lexists(final):
        _settle(folder)  # after a failed attempt
        path.rename(folder / f"{_NEW}{final.name}")
        sync_folder(folder)
        _settle(folder)
    else:
        path.rename(final)
        sync_folder(folder)
    return final


def _settle(folder: Path) -> None:
    """Let new checkpoints take the places of the old ones of their steps."""
    for new in folder.glob(f"{_NEW}step-*"):
        final = folder / new.name.removeprefix(_NEW)
        if os.path.lexists(final):
            _remove(final)
        new.rename(final)
        sync_folder(folder)


def discard(folder: Path) -> None:
    """Remove what is half-written or half-removed, by a save that failed or a killed job."""
    for left in folder.glob(".step-*"):
        shutil.rmtree(left, ignore_errors=True)


def prune(folder: Path, keep: int, newest: str) -> None:
    """Remove complete checkpoints beyond the `keep` newest; never `newest`, which was just made.

    Damaged ones stay for whoever wants to look at them.
    """
    good = []
    for name in candidates(folder):
        try:
            check_sizes(folder / name, read_manifest(folder / name))
        except CheckpointError:
            continue
        good.append(name)
    for name in good[keep:]:
        if name != newest:
            try:
                _remove(folder / name)
            except OSError as error:
                say(f"{folder / name} cannot be removed: {error.strerror}")


def _remove(path: Path) -> None:
    """Take it away in one step: a kill leaves no half of it under its name."""
    aside = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    path.rename(aside)
    shutil.rmtree(aside, ignore_errors=True)


def _seal(manifest: Any) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
