"""Removing folders with all that is in them: checked first, then out of sight, then gone.

Folders of a release are read-only, and only their owner (or root) can change that. So whoever may
rename a release may not be able to remove it, and a job that runs from it would lose it in vain.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterable
from pathlib import Path

from ddlce.errors import InputError, MachineError
from ddlce.files import explain_os_errors
from ddlce.ownership import user_name

#: In the name of a hidden folder that is being filled or removed.
PARTIAL = ".partial-"


def obstacle(folder: Path) -> str | None:
    """Why this user cannot remove a folder with all that is in it; None if they can."""
    status, above = folder.lstat(), folder.parent.stat()
    if not _is_mine(above) and not os.access(folder.parent, os.W_OK | os.X_OK, effective_ids=True):
        return f"{folder.parent} is not yours to write"
    if above.st_mode & stat.S_ISVTX and not _is_mine(above) and not _is_mine(status):
        return f"it belongs to {user_name(status.st_uid)}"
    for path, _names, _files in os.walk(folder):
        inside = os.lstat(path)
        name = "it" if path == str(folder) else path
        if inside.st_dev != status.st_dev:
            return f"another file system is mounted at {path}"
        if _is_mine(inside):
            continue
        writable = os.access(path, os.R_OK | os.W_OK | os.X_OK, effective_ids=True)
        if not writable or inside.st_mode & stat.S_ISVTX:
            return f"{name} belongs to {user_name(inside.st_uid)}"
    return None


def check_removable(folder: Path) -> None:
    """Stop before changing anything when this user cannot remove all of a folder.

    Raises:
        MachineError: says why.
    """
    if why := obstacle(folder):
        raise MachineError(
            f"cannot remove {folder}: {why}",
            "nothing was changed; its owner or root can remove it",
        )


def _is_mine(status: os.stat_result) -> bool:
    return os.geteuid() in (0, status.st_uid)


def remove_tree(folder: Path) -> None:
    """Remove a folder, read-only ones too; never follows a link.

    The folder is moved aside first, so that nobody meets it half-removed. If then the system does
    not let it be removed, it is put back as it was.

    Raises:
        MachineError: it is another user's, or has folders of other users; nothing was changed.
    """
    with explain_os_errors(folder):
        if folder.is_symlink() or not folder.is_dir():
            return
        check_removable(folder)
        doomed = folder
        if PARTIAL not in folder.name:
            doomed = folder.with_name(f".{folder.name}{PARTIAL}{os.getpid()}")
            folder.rename(doomed)
        try:
            _open_folders(str(doomed))
        except OSError:
            if doomed != folder:
                doomed.rename(folder)
            raise
        shutil.rmtree(doomed)


def _open_folders(top: str) -> None:
    """Let the owner write to every folder; on an error, all is as it was."""
    changed: list[tuple[str, int]] = []

    def let_in(path: str) -> None:
        mode = os.lstat(path).st_mode
        if stat.S_ISDIR(mode) and mode & stat.S_IRWXU != stat.S_IRWXU:
            os.chmod(path, stat.S_IMODE(mode) | stat.S_IRWXU)  # noqa: PTH101
            changed.append((path, stat.S_IMODE(mode)))

    try:
        let_in(top)
        for path, names, _files in os.walk(top):  # top down: opened before it is entered
            for name in names:
                let_in(f"{path}/{name}")
    except OSError:
        for path, mode in reversed(changed):
            os.chmod(path, mode)  # noqa: PTH101
        raise


def running_from(prefixes: Iterable[Path], python: Path | None = None) -> dict[Path, str]:
    """Which of these folders a process of this machine runs from, and one such process.

    Args:
        python: the environment whose Python they use, where `prefixes` are overlays. A program
            that was found by PATH shows its overlay in its variables only.

    Root sees every process. Others see what their own have loaded, and of other users' processes
    the command lines only.
    """
    wanted = {os.fsencode(prefix) + b"/": prefix for prefix in prefixes}
    processes: dict[Path, str] = {}
    for process in Path("/proc").glob("[0-9]*"):
        if not wanted or process.name == str(os.getpid()):
            continue
        loaded = _read(process / "maps") + b"\n" + _read(process / "cmdline").replace(b"\0", b"\n")
        inside = _overlay_of(process, loaded, python) if python else b""
        for text, prefix in wanted.items():
            if (text not in loaded and text != inside) or prefix in processes:
                continue
            program = os.fsdecode(_read(process / "comm")).strip()
            try:
                owner = user_name(process.stat().st_uid)
            except OSError:  # it has ended
                continue
            processes[prefix] = f"process {process.name} ({program}) of {owner}"
    return processes


def refuse_in_use(prefix: Path, python: Path | None = None) -> None:
    """Stop before an environment is removed under a program; see `running_from`.

    Raises:
        InputError: names the process.
    """
    for process in running_from([prefix], python).values():
        raise InputError(
            f"{prefix} is in use: {process} runs from it", "remove it when that has ended"
        )


def _overlay_of(process: Path, loaded: bytes, python: Path) -> bytes:
    """The overlay that a process runs in, ending in a slash, if its environment is `python`."""
    if os.fsencode(python) + b"/" not in loaded:
        return b""
    marker = b"VIRTUAL_ENV="
    names = _read(process / "environ").split(b"\0")
    return next((n.removeprefix(marker) + b"/" for n in names if n.startswith(marker)), b"")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # ended, or another user's
        return b""
