"""Which folders may be relied on: one rule for the root, the channel, the cache and their insides.

Whoever may write to a folder, or to one above it, decides what is in it. These are relied on:

- root, the user who runs this (under sudo: the one who called it), and the users in DDLCE_TRUST;
- where one of them, or the user's own group, has a folder that is set-gid and writable by its
  group: the members of that group. This is how several administrators share a root.

Everybody may write to a folder like `/tmp`; there, the sticky bit protects what is not theirs.
A symbolic link is as good as its owner. What the kernel lets others do by other means (access
lists, that show as permissions of the group, and file servers) is taken as it shows.
"""

from __future__ import annotations

import grp
import logging
import os
import pwd
import stat
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from ddlce.errors import MachineError

#: As many links as the kernel follows.
LINKS = 40

GROUP_FOLDER = stat.S_ISGID | stat.S_IWGRP
HINT = "choose another folder, or name who may change it in DDLCE_TRUST"


def check_place(place: Path, what: str, *, site: bool = False) -> None:
    """Refuse a folder that others could change; warn where they are only likely to be friends.

    Nothing is made: of a folder that is not there yet, the ones above it are looked at.

    Args:
        what: the name of its role, for the message: "the root".
        site: it is only read, so its own owner is whom the user has chosen to rely on.

    Raises:
        MachineError: names the folder or link on the way to `place`, and who may change it.
    """
    steps = list(_steps(place))
    trusted = _trusted_users()
    if site and steps:
        trusted = trusted | {steps[-1][1].st_uid}
    theirs = False  # below a group's folder, every owner is a member
    for number, (step, status) in enumerate(steps):
        itself = number == len(steps) - 1 and place.exists()
        subject = f"{what} {place}" if step == place else f"{what} {place}: {step}"
        ours = theirs or status.st_uid in trusted or "*" in _named()
        if stat.S_ISLNK(status.st_mode):
            if not ours:
                owner = user_name(status.st_uid)
                raise MachineError(f"{subject} is a link that belongs to {owner}", HINT)
            continue
        if status.st_mode & stat.S_IWOTH and "*" not in _named():
            sticky = status.st_mode & stat.S_ISVTX
            if itself or not sticky:
                raise MachineError(
                    f"{subject} may be changed by everybody",
                    f"take that away (chmod o-w {step}), or choose another folder",
                )
        if status.st_mode & GROUP_FOLDER == GROUP_FOLDER and (ours or _is_member(status.st_gid)):
            theirs = True
        elif not ours:
            _refuse_or_warn(subject, user_name(status.st_uid), itself or os.geteuid() == 0)
        elif status.st_mode & stat.S_IWGRP and not theirs and not _is_private(status):
            _warn(f"{subject} may be changed by the group {group_name(status.st_gid)}")
            theirs = True


def others_may_change(path: Path) -> str | None:
    """Why one file or folder is not safe from others: a clause for a message; None where it is.

    For code that was found and not named by the user: no group is relied on, and what is above is
    not looked at.

    Raises:
        OSError: `path` is not there, or may not be looked at.
    """
    status = path.lstat()
    if status.st_uid not in _trusted_users():
        return f"{path} belongs to {user_name(status.st_uid)}"
    if stat.S_ISLNK(status.st_mode):  # its mode says nothing
        return None
    if status.st_mode & stat.S_IWOTH:
        return f"everybody may write {path}"
    if status.st_mode & stat.S_IWGRP and not _is_private(status):
        return f"the group {group_name(status.st_gid)} may write {path}"
    return None


def refuse_changeable(path: Path, what: str = "") -> None:
    """Refuse a file that says whom to trust, or what it is a link to, if others could change it.

    Args:
        path: need not be there.
        what: how the message names it.

    Raises:
        MachineError: they could.
    """
    for place in (path, path.resolve()) if path.exists() else ():
        if reason := others_may_change(place):
            raise MachineError(f"{what}{place} is not used, since {reason}", f"see: ls -l {place}")


def closed_to_us(path: Path) -> str | None:
    """Why the user may not read a file or folder: a clause for a message; None where he may."""
    for step in (*reversed(path.parents), path):
        allowed = os.R_OK if step == path else os.X_OK
        try:
            if not os.access(step, allowed) and (status := step.stat()):
                return f"{step} belongs to {user_name(status.st_uid)}, who keeps it closed"
        except OSError:  # it is not there, which is another matter
            return None
    return None


def user_name(uid: int) -> str:
    """The name of a user, or `user NUMBER`."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def group_name(gid: int) -> str:
    """The name of a group, or its number."""
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def _steps(place: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Each folder and link from `/` to `place`, as the kernel goes; ends where nothing is yet."""
    here, ahead, links = Path("/"), list(reversed(place.absolute().parts[1:])), 0
    yield here, here.lstat()
    while ahead and links <= LINKS:
        name = ahead.pop()
        if name == "..":
            here = here.parent
            continue
        step = here / name
        try:
            status = step.lstat()
        except OSError:  # whoever uses the place finds out, and says so
            return
        yield step, status
        if stat.S_ISLNK(status.st_mode):
            target = step.readlink()
            ahead += reversed([part for part in target.parts if part != "/"])
            here = Path("/") if target.is_absolute() else here
            links += 1
        else:
            here = step


def _named() -> set[str]:
    """What DDLCE_TRUST says: users' names or numbers with commas between, or `*` for everybody."""
    return {name.strip() for name in os.environ.get("DDLCE_TRUST", "").split(",")} - {""}


def _trusted_users() -> set[int]:
    users = {0, os.geteuid()}
    if os.geteuid() == 0 and os.environ.get("SUDO_UID", "").isdecimal():
        users.add(int(os.environ["SUDO_UID"]))
    for name in _named() - {"*"}:
        try:
            users.add(int(name) if name.isdecimal() else pwd.getpwnam(name).pw_uid)
        except KeyError:
            raise MachineError(
                f"DDLCE_TRUST: there is no user {name!r}", "name users, with commas between them"
            ) from None
    return users


def _is_member(gid: int) -> bool:
    """Whether the user is in the group; root, who is in none by name, relies on none of them."""
    return os.geteuid() != 0 and gid in {os.getegid(), *os.getgroups()}


def _is_private(status: os.stat_result) -> bool:
    """Whether the folder's group is its owner's alone, as many systems make one for each user."""
    try:
        owner, group = pwd.getpwuid(status.st_uid), grp.getgrgid(status.st_gid)
    except KeyError:
        return False
    alone = owner.pw_gid == group.gr_gid and group.gr_name == owner.pw_name
    return alone and set(group.gr_mem) <= {owner.pw_name}


def _refuse_or_warn(subject: str, owner: str, refuse: bool) -> None:
    if refuse:
        raise MachineError(f"{subject} belongs to {owner}", HINT)
    _warn(f"{subject} belongs to {owner}, who may change what is in it")


@cache
def _warn(text: str) -> None:
    """Say it once."""
    logging.getLogger("ddlce").warning("warning: %s", text)
