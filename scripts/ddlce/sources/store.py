"""The source store: `<root>/<sha256>/<file>`, written once, checked whenever it is used."""

from __future__ import annotations

import contextlib
import glob
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

from ddlce.errors import MachineError, SourceError
from ddlce.files import (
    explain_os_errors,
    link_or_copy,
    partial_name,
    rename_synced,
    sha256_file,
    write_atomic,
)
from ddlce.model.source import Source
from ddlce.sources.client import locked_until

#: Beside each stored file: the size and mtime it had when its digest was last computed.
STAMP = ".verified"
LOCK = ".lock"
PARTIAL = ".partial"


class SourceStore:
    """Files by the digest of their bytes. Several processes may use one store at once."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, source: Source) -> Path:
        """Where the source's bytes are, or would be."""
        return self.root / source.sha256 / source.file

    def verify(self, source: Source) -> None:
        """Read the stored bytes and compare them with the lock.

        Raises:
            SourceError: absent, or other bytes; names the file, the expected and found digest.
        """
        path = self.path(source)
        if not path.is_file():
            raise SourceError(f"{path}: not in the source store ({source.spec})", "ddlce fetch")
        check_bytes(path, source)
        self._stamp(path)

    def intact(self, source: Source) -> bool:
        """Whether the source is there and right.

        Its digest is computed again only if size or mtime are not those of the last time.
        """
        path = self.path(source)
        try:
            if (path.parent / STAMP).read_text() == _identity(path):
                return path.stat().st_size == source.size
        except (OSError, UnicodeDecodeError):
            pass
        try:
            self.verify(source)
        except SourceError:
            return False
        return True

    def add(self, source: Source, file: Path) -> Path:
        """Take a file into the store, and check the bytes that are then there; returns its place.

        On one file system, it is hard-linked where nobody else can change it afterwards.

        Raises:
            SourceError: not the locked bytes.
        """
        path = self.path(source)
        partial = partial_name(path)
        try:
            take(file, partial)
            check_bytes(partial, source, file)
            with explain_os_errors(path):
                rename_synced(partial, path)
        except BaseException:
            partial.unlink(missing_ok=True)
            for folder in (path.parent, self.root):  # if nothing else is in them
                with contextlib.suppress(OSError):
                    folder.rmdir()
            raise
        self._stamp(path)
        return path

    @contextlib.contextmanager
    def writing(self, source: Source, stop: threading.Event) -> Iterator[Path]:
        """Hold the source's lock and give its folder for unfinished files.

        What a killed run left in the folder is still there; a run that ends well removes it.

        Raises:
            Cancelled: `stop` was set while another process had the lock.
        """
        home = self.root / source.sha256
        with locked_until(home / LOCK, stop):
            partial = home / PARTIAL
            with explain_os_errors(partial):
                partial.mkdir(exist_ok=True)
            yield partial
            for name in (source.file, STAMP):  # half-made by a run that was killed
                for left in home.glob(f".{glob.escape(name)}.*"):
                    left.unlink(missing_ok=True)
            shutil.rmtree(partial, ignore_errors=True)

    def tidy(self, source: Source, stop: threading.Event) -> None:
        """Remove what a run left that was killed after it had stored the file."""
        if (self.root / source.sha256 / PARTIAL).exists():
            with contextlib.suppress(MachineError), self.writing(source, stop):  # may be read-only
                pass

    def _stamp(self, path: Path) -> None:
        with contextlib.suppress(MachineError):  # it only saves time; a store may be read-only
            write_atomic(path.parent / STAMP, _identity(path))


def take(file: Path, target: Path) -> None:
    """Put a file at `target`, where from now on nobody but this user can change its bytes.

    It is linked if that holds already, else copied. Check the bytes of `target`, not of `file`.
    """
    link_or_copy(file, target, closed=True)


def check_bytes(path: Path, source: Source, origin: Path | None = None) -> None:
    """Compare a file with the lock.

    Args:
        origin: where it came from, for the message.

    Raises:
        SourceError: wrong size or digest; names the file, the expected and the found one.
    """
    size, name = path.stat().st_size, origin or path
    if size != source.size:
        raise SourceError(
            f"{name}: {size} bytes, but {source.spec} has {source.size} in sources.lock "
            f"(sha256 expected {source.sha256}, found {sha256_file(path)})",
            _HINT,
        )
    found = sha256_file(path)
    if found != source.sha256:
        raise SourceError(
            f"{name}: not the locked bytes of {source.spec}: "
            f"sha256 expected {source.sha256}, found {found}",
            _HINT,
        )


_HINT = "delete that file and run `ddlce fetch`"


def _identity(path: Path) -> str:
    stat = path.stat()
    return f"{stat.st_size} {stat.st_mtime_ns}\n"
