"""Debian's packages without dpkg: unpacks them, and says whose files are inside.

With Python's standard library alone, as it runs before any package is there.
"""

from __future__ import annotations

import io
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path


def unpack_all(folder: Path, root: Path, licences: Path) -> None:
    """Unpack each `.deb` of a folder below `root`; texts of their licences go to `licences`."""
    sources = [unpack(path, root) for path in sorted(folder.glob("*.deb"))]
    write_licences(root, sources, licences)


def unpack(deb: Path, root: Path) -> tuple[str, str]:
    """Unpack a Debian package; returns its source package's name and version."""
    source = ""
    for name, data in members(deb.read_bytes()):
        if name.startswith("control.tar"):
            with tarfile.open(fileobj=io.BytesIO(data)) as archive:
                file = archive.extractfile("./control")
                assert file, f"{deb}: no control file"
                source = file.read().decode()
        if name.startswith("data.tar"):
            with tarfile.open(fileobj=io.BytesIO(data)) as archive:
                archive.extractall(root)
    fields = dict(line.split(": ", 1) for line in source.splitlines() if ": " in line)
    name, _, version = fields.get("Source", fields["Package"]).partition(" (")
    return name, version.rstrip(")") or fields["Version"]


def members(archive: bytes) -> Iterator[tuple[str, bytes]]:
    """The members of an `ar` archive."""
    place = 8
    while place < len(archive):
        header = archive[place : place + 60]
        size = int(header[48:58])
        yield header[:16].decode().strip().rstrip("/"), archive[place + 60 : place + 60 + size]
        place += 60 + size + size % 2


def write_licences(root: Path, sources: list[tuple[str, str]], folder: Path) -> None:
    """Each package's copyright, and where the source of what is inside is to be had."""
    folder.mkdir()
    lines = [
        "The programs are Debian's. `apt-get source NAME=VERSION` on Debian fetches their source"
    ]
    lines += [
        "with patches and build scripts, and `ddlce sources add debian-source:NAME=VERSION` does."
    ]
    lines += ["", *(f"  {name}={version}" for name, version in sorted(set(sources))), ""]
    (folder / "SOURCES").write_text("\n".join(lines))
    for path in sorted((root / "usr" / "share" / "doc").glob("*/copyright")):
        if path.exists() and not path.parent.is_symlink():
            shutil.copyfile(path, folder / path.parent.name)


def library(root: Path, name: str, triple: str = "x86_64-linux-gnu") -> Path:
    """Where Debian has a library."""
    places = (root / folder / triple / name for folder in ("lib", "usr/lib"))
    return next(path for path in places if path.exists())


def copy(source: Path, target: Path) -> None:
    """A copy of the file that a name means, or of a folder, with modes of its own."""
    if source.is_dir():
        for path in sorted(source.iterdir()):
            copy(path, target / path.name)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source.resolve(), target)
    target.chmod(0o755 if source.stat().st_mode & 0o100 else 0o644)
