"""The source store: `<root>/<sha256>/<file>`, written once, checked whenever it is used."""

from __future__ import annotations

import contextlib
import glob
import shutil
from collections.abc import Iterator
from pathlib import Path

from ddlce.errors import MachineError, SourceError
from ddlce.files import explain_os_errors, link_or_copy, locked, sha256_file, write_atomic
from ddlce.model.source import Source

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
        """Take a file into the store after checking its bytes; returns its place there.

        A file on the same file system is hard-linked.

        Raises:
            SourceError: not the locked bytes.
        """
        check_bytes(file, source)
        path = self.path(source)
        link_or_copy(file, path)
        self._stamp(path)
        return path

    @contextlib.contextmanager
    def writing(self, source: Source) -> Iterator[Path]:
        """Hold the source's lock and give its folder for unfinished files.

        What a killed run left in the folder is still there; a run that ends well removes it.
        """
        home = self.root / source.sha256
        with locked(home / LOCK):
            partial = home / PARTIAL
            with explain_os_errors(partial):
                partial.mkdir(exist_ok=True)
            yield partial
            for name in (source.file, STAMP):  # half-made by a run that was killed
                for left in home.glob(f".{glob.escape(name)}.*"):
                    left.unlink(missing_ok=True)
            shutil.rmtree(partial, ignore_errors=True)

    def tidy(self, source: Source) -> None:
        """Remove what a run left that was killed after it had stored the file."""
        if (self.root / source.sha256 / PARTIAL).exists():
            with contextlib.suppress(MachineError), self.writing(source):  # may be read-only
                pass

    def _stamp(self, path: Path) -> None:
        with contextlib.suppress(MachineError):  # it only saves time; a store may be read-only
            write_atomic(path.parent / STAMP, _identity(path))


def check_bytes(path: Path, source: Source) -> None:
    """Compare a file with the lock.

    Raises:
        SourceError: wrong size or digest; names the file, the expected and the found one.
    """
    size = path.stat().st_size
    if size != source.size:
        raise SourceError(
            f"{path}: {size} bytes, but {source.spec} has {source.size} in sources.lock "
            f"(sha256 expected {source.sha256}, found {sha256_file(path)})",
            _HINT,
        )
    found = sha256_file(path)
    if found != source.sha256:
        raise SourceError(
            f"{path}: not the locked bytes of {source.spec}: "
            f"sha256 expected {source.sha256}, found {found}",
            _HINT,
        )


_HINT = "delete that file and run `ddlce fetch`"


def _identity(path: Path) -> str:
    stat = path.stat()
    return f"{stat.st_size} {stat.st_mtime_ns}\n"
