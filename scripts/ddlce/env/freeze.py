"""What makes a release immutable: permissions, conda's frozen marker (CEP 22) and pip's (PEP 668).

Files of a release are hard links into the root's package cache, so a permission holds for both
names: the cache is read-only too, and so are the hard links in clones. That is wanted: whoever
edits such a file in place gets an error instead of a change in every environment. For root,
whom permissions do not stop, `ddlce env verify` is what notices.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

from ddlce.env.records import Record
from ddlce.errors import InputError
from ddlce.files import write_atomic

FROZEN = Path("conda-meta", "frozen")
EXTERNAL = "EXTERNALLY-MANAGED"
CLONE = "ddlce env clone NAME"


def freeze(prefix: Path, env: str, records: list[Record]) -> None:
    """Mark a prefix as frozen for conda and pip, then take away every write permission."""
    message = f"{env} is a release and cannot be changed. Make a copy of your own that can: {CLONE}"
    write_atomic(prefix / FROZEN, json.dumps({"message": message}) + "\n")
    if any(record.data.get("name") == "python" for record in records):
        for folder in prefix.glob("lib/python3.*/"):
            write_atomic(folder / EXTERNAL, f"[externally-managed]\nError={message}\n")
    make_read_only(prefix)


def make_read_only(folder: Path) -> None:
    """Take write permission from every file and folder, and let everybody read."""
    for path, _names, files in os.walk(folder, topdown=False):
        for name in files:
            file = Path(path, name)
            mode = file.lstat().st_mode
            if stat.S_ISREG(mode):
                file.chmod(0o555 if mode & stat.S_IXUSR else 0o444)
        Path(path).chmod(0o555)


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
    """Take write permission from the files of packages that are hard links into a cache."""
    for record in records:
        for entry in record.entries:
            file = prefix / entry["_path"]
            status = file.lstat()
            if stat.S_ISREG(status.st_mode) and status.st_nlink > 1 and status.st_mode & 0o222:
                file.chmod(0o555 if status.st_mode & stat.S_IXUSR else 0o444)


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
