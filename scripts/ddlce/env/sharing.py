"""How a clone gets a file of its source: as a reflink, a hard link, or a copy.

A reflink (on btrfs, and on XFS as it is made today) is a file of its own that shares its data until
one of the two is changed. A hard link is the same file: whoever edits it edits the release and all
other clones. The release's files are read-only, which stops everybody but those whom it belongs to.
So these get copies of what people edit, Python's sources, and links of the rest.

The kernel lets nobody link to files of others where `fs.protected_hardlinks` is set, as it is on
most systems: then all are copies.
"""

# ruff: noqa: PTH101, PTH104, PTH107, PTH116, PTH123

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path

from ddlce.errors import SourceError

#: ioctl number of `linux/fs.h`; the direction is in other bits on POWER.
FICLONE = 0x80049409 if platform.machine().startswith("ppc") else 0x40049409

#: The ends of the names of files that people edit.
EDITED = (".py",)


@dataclass
class Sharing:
    """Gives files to one clone, and counts how.

    Attributes:
        reflinked, linked, copied: how many files.
        reflinks, links: whether they work here; found out by the first file.
    """

    reflinked: int = 0
    linked: int = 0
    copied: int = 0
    reflinks: bool = True
    links: bool = True

    def give(self, file: str, name: str, mtime_ns: int | None = None) -> None:
        """Make `name`, which is not there yet, the same as `file`.

        Args:
            name: what the clone gets; writable for its owner where it is no hard link.
            mtime_ns: the time that bytecode was compiled for, where `file` is a Python source.

        Raises:
            SourceError: `file` is not there.
            OSError: of writing.
        """
        try:
            status = os.stat(file)
        except OSError:
            raise SourceError(
                f"{file} is not there", "find out what else is gone: ddlce env verify"
            ) from None
        same_time = mtime_ns in (None, status.st_mtime_ns)
        if self.reflinks and self._reflink(file, name, status):
            self.reflinked += 1
        elif self.links and same_time and not _is_edited(file, status) and self._link(file, name):
            self.linked += 1
            return
        else:
            shutil.copyfile(file, name)
            os.chmod(name, stat.S_IMODE(status.st_mode) | stat.S_IWUSR)
            self.copied += 1
        if mtime_ns is not None:
            os.utime(name, ns=(mtime_ns, mtime_ns))

    def own(self, name: str, mtime_ns: int | None) -> None:
        """Treat a file that is in the clone already as `give` would: copies for those who edit."""
        status = os.lstat(name)
        if not stat.S_ISREG(status.st_mode):
            return
        if status.st_nlink > 1:
            if not _is_edited(name, status) and mtime_ns in (None, status.st_mtime_ns):
                return
            partial = f"{name}.partial"
            shutil.copyfile(name, partial)
            os.chmod(partial, stat.S_IMODE(status.st_mode) | stat.S_IWUSR)
            os.rename(partial, name)
        if mtime_ns is not None:
            os.utime(name, ns=(mtime_ns, mtime_ns))

    def _link(self, file: str, name: str) -> bool:
        try:
            os.link(file, name)
        except OSError:  # another file system, another owner, too many links
            self.links = self.linked > 0
            return False
        return True

    def _reflink(self, file: str, name: str, status: os.stat_result) -> bool:
        with open(file, "rb") as source, open(name, "xb") as target:
            try:
                fcntl.ioctl(target, FICLONE, source.fileno())
            except OSError:  # another file system, or one that has none
                self.reflinks = False
            else:
                os.fchmod(target.fileno(), stat.S_IMODE(status.st_mode) | stat.S_IWUSR)
                return True
        os.remove(name)
        return False


def compiled_time(prefix: str | Path, name: str) -> int | None:
    """The time (ns) of a Python source in a prefix, which its bytecode there is checked by."""
    if not name.endswith(".py"):
        return None
    try:
        return os.stat(f"{prefix}/{name}").st_mtime_ns
    except OSError:  # its owner has removed it
        return None


def _is_edited(file: str, status: os.stat_result) -> bool:
    """Whether this user could change the release's file, and may well want to."""
    return file.endswith(EDITED) and os.geteuid() in (0, status.st_uid)
