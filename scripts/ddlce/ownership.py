"""Who could change a file: other users share the machine and its file systems."""

from __future__ import annotations

import grp
import os
import pwd
import stat
from pathlib import Path


def others_may_change(path: Path) -> str | None:
    """Why `path` is not safe from other users: a clause for a message; None where it is safe.

    Safe is what this user or root owns and nobody else may write. Under sudo, the user who called
    it counts as this user. A group that has no other member counts as its user.

    Raises:
        OSError: `path` is not there, or may not be looked at.
    """
    status = path.lstat()
    if status.st_uid not in _trusted():
        return f"{path} belongs to {_user(status.st_uid)}"
    if stat.S_ISLNK(status.st_mode):  # its mode says nothing
        return None
    if status.st_mode & stat.S_IWOTH:
        return f"everybody may write {path}"
    if status.st_mode & stat.S_IWGRP and not _private(status.st_gid, status.st_uid):
        return f"the group {_group(status.st_gid)} may write {path}"
    return None


def _trusted() -> set[int]:
    trusted = {0, os.geteuid()}
    caller = os.environ.get("SUDO_UID", "")
    if os.geteuid() == 0 and caller.isdigit():
        trusted.add(int(caller))
    return trusted


def _private(group: int, owner: int) -> bool:
    """Whether a group is its owner's alone, as where every user has a group of the same name."""
    try:
        entry, user = grp.getgrgid(group), pwd.getpwuid(owner)
    except KeyError:
        return False
    return (
        user.pw_gid == group
        and entry.gr_name == user.pw_name
        and not ({*entry.gr_mem} - {user.pw_name})
    )


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


def _group(number: int) -> str:
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)
