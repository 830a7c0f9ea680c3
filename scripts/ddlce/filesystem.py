"""What a folder must offer, so that environments can be in it or builds be done in it."""

from __future__ import annotations

import fcntl
import os
import tempfile
from pathlib import Path

from ddlce.errors import InputError, MachineError

#: What stands in packed files for the prefix has so many characters; in programs, the real one
#: is written into its place. Source: conda-build, `prefix_length`.
PREFIX_LENGTH = 255


def obstacle(folder: Path) -> str | None:
    """Why `folder`, or where it will be made, is of no use; None where it is.

    Locks are tried only where this user may write: for others there is nothing to lock.
    """
    there = next(place for place in (folder, *folder.parents) if place.exists())
    if os.statvfs(there).f_flag & os.ST_NOEXEC:
        return f"{folder} is on a file system that is mounted noexec: no program can be run from it"
    if there.is_dir() and os.access(there, os.W_OK):
        with tempfile.TemporaryFile(dir=there) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX)
            except OSError as error:
                return no_locks(folder, error)
    return None


def no_locks(folder: Path, error: OSError) -> str:
    """The message where the kernel refuses a lock."""
    return (
        f"the file system of {folder} has no file locks (flock: {error.strerror}); Lustre has "
        "them when it is mounted with -o flock"
    )


def require(folder: Path, option: str) -> None:
    """Refuse a folder in which no program runs, or that has no locks.

    Args:
        folder: need not be there yet.
        option: how its user names another one.

    Raises:
        MachineError: says which of the two.
    """
    if problem := obstacle(folder):
        raise MachineError(problem, f"choose a folder on another one, with {option}")


def check_prefix(prefix: Path) -> None:
    """Refuse a prefix that is longer than packages have space for, or that PATH cannot hold.

    Raises:
        InputError: names it and what is wrong.
    """
    check_characters(prefix)
    length = len(os.fsencode(prefix))
    if length > PREFIX_LENGTH:
        raise InputError(
            f"{prefix} has {length} characters, and the files of packages have space for "
            f"{PREFIX_LENGTH}",
            "choose a shorter path",
        )


def check_characters(prefix: Path) -> None:
    """Refuse the path of an environment that PATH or a line of a file cannot hold.

    Raises:
        InputError: names it and the character.
    """
    for character, why in ((":", "a colon, at which PATH is divided"), ("\n", "a line break")):
        if character in str(prefix):
            raise InputError(f"{str(prefix)!r} has {why}", "choose a path without it")
