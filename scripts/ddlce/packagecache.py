"""Folders of unpacked packages, in which each is known by the sha256 of its archive.

The layout is rattler's, and conda and mamba read it too: a folder `name-version-build`, and beside
it a note that says which archive was unpacked there. Two archives may have one name, version and
build string. The second one's folder then has a part of its sha256 in its name as well, so that
no package takes the place of another that a release or a clone still needs.
"""

from __future__ import annotations

from pathlib import Path

#: The lock of whoever brings packages into a cache or takes damaged ones out, beside them.
LOCK = ".lock"

#: How a note begins: rattler's revision (8 bytes); then comes the sha256.
REVISION = (1).to_bytes(8, "big")


def note_of(folder: Path) -> Path:
    """The file beside an unpacked package that says what it was made from."""
    return folder.with_name(f"{folder.name}.lock")


def sha256_of(folder: Path) -> str:
    """The sha256 (hex) of the archive that was unpacked to `folder`; "" where that is not known."""
    try:
        note = note_of(folder).read_bytes()
    except OSError:
        return ""
    return note[8:40].hex() if len(note) >= 40 else ""


def write_note(folder: Path, sha256: str) -> None:
    """Say that `folder` is complete, and which archive it was made from."""
    note_of(folder).write_bytes(REVISION + bytes.fromhex(sha256))


def find(cache: Path, stem: str, sha256: str) -> Path | None:
    """Where `cache` has the unpacked package, made from the archive with this sha256.

    Args:
        cache: a folder of unpacked packages; need not be there.
        stem: `name-version-build`.
        sha256: of the archive, in hex.
    """
    for folder in _places(cache, stem, sha256):
        if sha256_of(folder) == sha256 and (folder / "info").is_dir():
            return folder
    return None


def vacant(cache: Path, stem: str, sha256: str) -> Path:
    """Where to put a package that `find` does not find: what is there now is of no use."""
    plain, own = _places(cache, stem, sha256)
    return own if sha256_of(plain) not in ("", sha256) else plain


def _places(cache: Path, stem: str, sha256: str) -> tuple[Path, Path]:
    return cache / stem, cache / f"{stem}.{sha256[:16]}"
