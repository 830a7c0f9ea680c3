"""Checks that what is to be installed is signed: before a byte of it is unpacked."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from ddlce.errors import InputError, MachineError, SourceError
from ddlce.files import explain_os_errors, make_folder, write_atomic
from ddlce.locks import locked
from ddlce.ownership import refuse_changeable
from ddlce.trust.policy import Signatures

#: Bytes of a root: TUF's own limit.
LARGEST_ROOT = 512_000

#: When the last check was, so that a clock that was set back is seen.
CHECKED = "last-check"

#: Clocks of machines that share a home differ by no more: one that was set back further is refused.
CLOCK_TOLERANCE = timedelta(minutes=5)

ASK = "nothing was written; ask whoever keeps the channel, by a way that does not lead through it"


def check_signed(wanted: Signatures, cache: Path, files: Mapping[str, str]) -> None:
    """Make sure that files are signed by whom this machine trusts, now.

    Args:
        cache: the user's cache, where it is kept what was seen before.
        files: name in the metadata → sha256 in hex.

    Raises:
        InputError: the trusted root cannot be used.
        MachineError: the cache cannot be written, this `ddlce` has no `tuf`, or the clock was set
            back.
        SourceError: the metadata, or one of the files, is not signed as it must be.
    """
    signed = signed_digests(wanted, cache, list(files))
    for name, sha256 in files.items():
        _check_file(name, sha256, signed[name], wanted.metadata)


def signed_digest(wanted: Signatures, cache: Path, name: str) -> str:
    """The sha256 of a file that is signed: what it must have that is got by this name.

    Raises:
        DdlceError: as `check_signed`.
    """
    digest = signed_digests(wanted, cache, [name])[name]
    if digest is None:
        raise SourceError(f"{wanted.metadata}: {name} is not among the signed files", ASK)
    return digest


def signed_digests(wanted: Signatures, cache: Path, names: list[str]) -> dict[str, str | None]:
    """Name → the sha256 that is signed, or None.

    Raises:
        DdlceError: as `check_signed`, of the metadata.
    """
    root = _read_root(Path(wanted.root))
    metadata = wanted.metadata if "://" in wanted.metadata else Path(wanted.metadata).as_uri()
    # Not by the root, too: a site renews its file, and what was seen before must count then.
    key = hashlib.sha256(metadata.encode()).hexdigest()[:16]
    seen = cache / "trust" / key
    with explain_os_errors(seen):
        make_folder(seen)
        with locked(seen / ".lock", passing=True):
            _check_clock(seen)
            signed = _signed(root, wanted.root, metadata, seen, names)
            write_atomic(seen / CHECKED, datetime.now(UTC).isoformat() + "\n")
    return signed


def _read_root(path: Path) -> bytes:
    refuse_changeable(path, "the trusted root ")
    try:
        with path.open("rb") as stream:
            return stream.read(LARGEST_ROOT)
    except OSError as error:
        raise InputError(
            f"the trusted root {path} cannot be read: {error.strerror}",
            "get it from whoever keeps the channel, and name it in the settings file",
        ) from error


def _check_clock(seen: Path) -> None:
    try:
        last = datetime.fromisoformat((seen / CHECKED).read_text().strip())
        last = last if last.tzinfo else last.replace(tzinfo=UTC)
    except (FileNotFoundError, ValueError):
        return
    now = datetime.now(UTC)
    if now < last - CLOCK_TOLERANCE:
        raise MachineError(
            f"the clock was set back: it is {now:%Y-%m-%d %H:%M}, and the last check was at "
            f"{last:%Y-%m-%d %H:%M} UTC",
            f"set the clock; if it was wrong then, remove {seen / CHECKED}",
        )


def _signed(
    root: bytes, root_file: str, metadata: str, seen: Path, names: list[str]
) -> dict[str, str | None]:
    """Name → the sha256 that is signed, or None."""
    try:
        from tuf.api.exceptions import DownloadError, RepositoryError
        from tuf.ngclient import Updater

        from ddlce.trust.fetcher import Fetcher
        from ddlce.trust.sentences import sentence
    except ModuleNotFoundError as error:
        raise MachineError(
            f"this ddlce cannot check signatures, as it has no {error.name}",
            "use that of a newer release, or of the source tree",
        ) from error
    fetcher = Fetcher()
    try:
        updater = Updater(str(seen), metadata, fetcher=fetcher, bootstrap=root)
    except RepositoryError as error:
        raise InputError(
            f"the trusted root {root_file} is refused: {sentence(error, Path(root_file).name)}",
            "get it from whoever keeps the channel",
        ) from error
    try:
        updater.refresh()
        found = {name: updater.get_targetinfo(name) for name in names}
    except (RepositoryError, DownloadError) as error:
        raise SourceError(f"{metadata}: {sentence(error, fetcher.last)}", ASK) from error
    return {name: info.hashes.get("sha256") if info else None for name, info in found.items()}


def _check_file(name: str, sha256: str, signed: str | None, metadata: str) -> None:
    if signed is None:
        raise SourceError(f"{metadata}: {name} is not among the signed files", ASK)
    if signed != sha256:
        raise SourceError(
            f"{name} is not the signed one: its sha256 is {sha256[:16]}…, and {signed[:16]}… is "
            "signed",
            ASK,
        )
