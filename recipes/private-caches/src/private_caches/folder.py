"""The folder that belongs to this user alone."""

from __future__ import annotations

import atexit
import contextlib
import os
import pwd
import shutil
import stat
import tempfile
from pathlib import Path

#: Of the folder in the user's cache folder that holds all others.
NAME = "private-caches"


class NotPrivateError(RuntimeError):
    """Somebody else could have put something into a cache."""


def private_folder(name: str) -> str:
    """The folder `name` of the user's cache folder, made with mode 0700 where it is not there.

    A process whose user has no cache folder of their own, as in many containers, gets a fresh
    folder of mode 0700, and empties it when it ends.

    Args:
        name: one or more parts of a path.

    Raises:
        NotPrivateError: the folder is there, and is another's or others may write to it.
    """
    home = _cache_home()
    if home is None:
        return _fresh(name)
    folder = home
    for part in (NAME, *Path(name).parts):
        folder = folder / part
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            _check(folder)
        except OSError:
            return _fresh(name)
    return str(folder) if os.access(folder, os.W_OK | os.X_OK) else _fresh(name)


def _cache_home() -> Path | None:
    """The user's cache folder, made if need be; None: there is none, or not theirs alone."""
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    chosen = given.is_absolute()
    try:
        home = given if chosen else _home() / ".cache"
        home.mkdir(mode=0o700, parents=chosen, exist_ok=True)
        home = home.resolve(strict=True)
        return home if all(_others_keep_out(folder) for folder in [home, *home.parents]) else None
    except (KeyError, OSError):  # KeyError: a container's user without a name
        return None


def _home() -> Path:
    return Path(os.environ.get("HOME") or pwd.getpwuid(os.geteuid()).pw_dir)


def _others_keep_out(folder: Path) -> bool:
    """Whether nobody but root, this user and a group of theirs can rename what is in it."""
    seen = folder.stat()
    ours = seen.st_uid in (0, os.geteuid())
    return ours and (not seen.st_mode & stat.S_IWOTH or bool(seen.st_mode & stat.S_ISVTX))


def _check(folder: Path) -> None:
    seen = folder.lstat()
    if not stat.S_ISDIR(seen.st_mode):
        wrong = "is no folder"
    elif seen.st_uid != os.geteuid():
        wrong = f"belongs to another user ({_name(seen.st_uid)})"
    elif seen.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        wrong = f"can be written by others (mode {stat.S_IMODE(seen.st_mode):o})"
    else:
        return
    raise NotPrivateError(
        f"{folder} {wrong}, so what it holds is not used: remove it, or let XDG_CACHE_HOME name "
        "another folder"
    )


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


_made: dict[str, str] = {}


def _fresh(name: str) -> str:
    """This process's own temporary folder for `name`; children of a fork share it."""
    if name not in _made:
        _made[name] = tempfile.mkdtemp(prefix=f"{Path(name).name}-")
        atexit.register(_empty, _made[name], os.getpid())
    return _made[name]


def _empty(folder: str, maker: int) -> None:
    """Removes what is in it. It stays itself: what this process has started may still use it.

    Its name has been seen by then: somebody else could make it anew.
    """
    if os.getpid() != maker:
        return
    with contextlib.suppress(OSError):  # the program has removed it, or the disk fails
        for path in Path(folder).iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink()
