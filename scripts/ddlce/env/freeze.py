"""What makes a release immutable: permissions, conda's frozen marker (CEP 22) and pip's (PEP 668).

Files of a release are hard links into the root's package cache, so a permission holds for both
names: the cache is read-only too, and so are the hard links in clones. That is wanted: whoever
edits such a file in place gets an error instead of a change in every environment. For root,
whom permissions do not stop, `ddlce env verify` is what notices.

None of it reaches a copy that conda makes.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from pathlib import Path

from ddlce.env.records import FileEntry, Record
from ddlce.errors import InputError
from ddlce.files import write_atomic

FROZEN = Path("conda-meta", "frozen")
EXTERNAL = "EXTERNALLY-MANAGED"
OVERLAY, CLONE = "ddlce env overlay NAME", "ddlce env clone NAME"


def freeze(prefix: Path, env: str, records: list[Record]) -> None:
    """Mark a prefix as frozen for conda and pip; the caller saves the records.

    pip's mark becomes a file of the python package in this prefix only. `conda create --clone`
    copies files that no package has, and makes the others anew from the packages, which do not
    have it. What is in `conda-meta` it never copies.
    """
    message = (
        f"{env} is a release and cannot be changed. Python packages of your own go on top of it: "
        f"{OVERLAY}. To change other packages, make a copy: {CLONE}"
    )
    write_atomic(prefix / FROZEN, json.dumps({"message": message}) + "\n")
    text = f"[externally-managed]\nError={message}\n"
    for record in records:
        if record.data.get("name") == "python":
            for folder in prefix.glob("lib/python3.*/"):
                write_atomic(folder / EXTERNAL, text)
                record.add([_entry(prefix, folder / EXTERNAL, text)])


def _entry(prefix: Path, path: Path, text: str) -> FileEntry:
    return {
        "_path": str(path.relative_to(prefix)),
        "path_type": "hardlink",
        "sha256": (digest := hashlib.sha256(text.encode()).hexdigest()),
        "sha256_in_prefix": digest,
        "size_in_bytes": len(text.encode()),
    }


def is_mark(name: str) -> bool:
    """Whether a file in a package's record is a mark of the release, and in no package."""
    return name.endswith(f"/{EXTERNAL}")


def make_read_only(top: Path) -> None:
    """Take write permission from a file, or all files and folders below, and let everybody read.

    Files of root keep root's own, which stops nobody else and without which root may write as
    well: conda copies the modes of packages into the clones of users who may not link to them.
    """
    for path, _names, files in os.walk(top, topdown=False):
        for name in files:
            _close(f"{path}/{name}")
        _close(path)
    _close(str(top))


def _close(path: str) -> None:
    """Set a mode that is not set yet: in a cache that is shared, some files are others'."""
    status = os.lstat(path)
    if os.geteuid() not in (0, status.st_uid):
        return
    wanted = 0o555 if stat.S_ISDIR(status.st_mode) else _frozen_mode(status)
    if not stat.S_ISLNK(status.st_mode) and stat.S_IMODE(status.st_mode) != wanted:
        os.chmod(path, wanted)  # noqa: PTH101


def _frozen_mode(status: os.stat_result) -> int:
    mode = 0o555 if status.st_mode & stat.S_IXUSR else 0o444
    return mode if status.st_uid else mode | stat.S_IWUSR


def can_be_written(status: os.stat_result) -> bool:
    """Whether a file's permissions let anybody but root write it."""
    return bool(status.st_mode & (0o222 if status.st_uid else 0o022))


def make_writable(prefix: Path) -> tuple[int, int]:
    """Let the owner write the files of a clone that are its own.

    Hard links stay read-only: they are also the release's files.

    Returns:
        How many files are hard links, and how many are the clone's own.
    """
    linked = own = 0
    folders = [str(prefix)]
    while folders:  # os.scandir and strings, not pathlib: this is half of a clone's own time
        folder = folders.pop()
        os.chmod(folder, 0o755)  # noqa: PTH101
        for entry in os.scandir(folder):
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.path)
            elif entry.is_file(follow_symlinks=False):
                status = entry.stat(follow_symlinks=False)
                if status.st_nlink > 1:
                    linked += 1
                else:
                    own += 1
                    os.chmod(entry.path, stat.S_IMODE(status.st_mode) | stat.S_IWUSR)  # noqa: PTH101
    return linked, own


def protect_links(prefix: Path, records: list[Record]) -> None:
    """Take write permission from the files of packages that are hard links into a cache.

    What the user has deleted in a clone is left alone.
    """
    for record in records:
        for entry in record.entries:
            file = prefix / entry["_path"]
            if not os.path.lexists(file):
                continue
            status = file.lstat()
            if stat.S_ISREG(status.st_mode) and status.st_nlink > 1 and can_be_written(status):
                file.chmod(_frozen_mode(status))


def refuse_frozen(prefix: Path) -> None:
    """Stop before changing a frozen environment.

    Raises:
        InputError: the environment is frozen; says what its marker says.
    """
    marker = prefix / FROZEN
    if not marker.exists():
        return
    try:
        said = str(json.loads(marker.read_text(encoding="utf-8"))["message"])
    except (OSError, ValueError, KeyError, TypeError):  # the marker may be empty (CEP 22)
        said = "it must not be changed"
    raise InputError(f"{prefix} is frozen: {said}", f"make a copy of your own: {CLONE}")
