"""The metadata of a channel, for whoever keeps it: roots, and what the release keys sign.

    metadata/1.root.json, 2.root.json, ...   each signed by enough keys of the one before, too
    metadata/root.draft.json                 one that more root keys must sign
    metadata/N.targets.json, N.snapshot.json, timestamp.json

The last one is written last: clients see the old state or the new one.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuf.api.exceptions import RepositoryError, UnsignedMetadataError
from tuf.api.metadata import Metadata, MetaFile, Root, Snapshot, TargetFile, Targets, Timestamp
from tuf.api.serialization.json import JSONSerializer

from ddlce.errors import InputError, WorkError
from ddlce.files import make_folder, write_atomic
from ddlce.trust.names import DRAFT
from ddlce.waiting import waiting_lock

if TYPE_CHECKING:
    from securesystemslib.signer import CryptoSigner, Key

#: The roles whose keys are the release keys.
RELEASE = ("targets", "snapshot", "timestamp")

#: The variable by which builds get the same bytes at any time: seconds since 1970.
EPOCH = "SOURCE_DATE_EPOCH"

_SERIALIZER = JSONSerializer(compact=False)


@dataclass(frozen=True)
class Roles:
    """Whose signatures count.

    Attributes:
        root: the keys that change this.
        threshold: how many of them must sign.
        release: the keys that sign releases.
        release_threshold: how many of them must sign.
    """

    root: Sequence[Key]
    threshold: int
    release: Sequence[Key]
    release_threshold: int = 1


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Two who sign at once would give one version two contents."""
    make_folder(folder)
    with waiting_lock(folder / ".lock", passing=True):
        yield


def make_root(folder: Path, roles: Roles, signers: Sequence[CryptoSigner], days: int) -> int:
    """Make the next root. It names all keys: one that it leaves out is revoked.

    Args:
        folder: the channel's metadata.
        roles: whose signatures count from now on.
        signers: the root keys that are at hand.
        days: until it expires.

    Returns:
        How many signatures are missing still; 0 where the root is published.

    Raises:
        InputError: a threshold is higher than its keys, or a signer is no root key.
        MachineError: the folder cannot be written.
    """
    for name, keys, threshold in (
        ("root", roles.root, roles.threshold),
        ("release", roles.release, roles.release_threshold),
    ):
        if not 1 <= threshold <= len({key.keyid for key in keys}):
            raise InputError(
                f"{threshold} of {len(keys)} {name} keys cannot sign", "name more keys, or lower it"
            )
    with _alone(folder):
        before = newest_root(folder)
        version = before.signed.version + 1 if before else 1
        return _sign_root(folder, Metadata(_root_of(roles, version, days)), before, signers)


def _root_of(roles: Roles, version: int, days: int) -> Root:
    root = Root(version=version, expires=_expiry(days), consistent_snapshot=True)
    for key in roles.root:
        root.add_key(key, "root")
    root.roles["root"].threshold = roles.threshold
    for role in RELEASE:
        for key in roles.release:
            root.add_key(key, role)
        root.roles[role].threshold = roles.release_threshold
    return root


def cosign(
    folder: Path,
    signers: Sequence[CryptoSigner],
    show: Callable[[list[str]], None] = lambda _: None,
) -> int:
    """Add signatures to the draft of a root; returns how many are missing still.

    Args:
        signers: root keys; none, to look only.
        show: called with lines that say what the draft is, before it is signed.

    Raises:
        InputError: there is no draft, or a signer is no root key.
        MachineError: the folder cannot be written.
    """
    with _alone(folder):
        draft = _load(folder / DRAFT)
        if draft is None:
            raise InputError(f"{folder / DRAFT}: missing", "make it: ddlce keys root")
        before = newest_root(folder)
        if not isinstance(draft.signed, Root):
            raise InputError(f"{folder / DRAFT} is no root", "remove it; make it: ddlce keys root")
        if draft.signed.version != (before.signed.version if before else 0) + 1:
            raise InputError(
                f"{folder / DRAFT} is not the next root: it is version {draft.signed.version}",
                "remove it, if that root is published; else make it again: ddlce keys root",
            )
        show(describe_root(draft, before))
        return _sign_root(folder, draft, before, signers)


def describe_root(made: Metadata[Root], before: Metadata[Root] | None) -> list[str]:
    """What a root says, and how that differs from the one before: a line for each thing."""
    lines = [f"root {made.signed.version}, expires {made.signed.expires:%Y-%m-%d}"]
    roles = [made.signed.roles[name] for name in RELEASE]
    alike = all(role.to_dict() == roles[0].to_dict() for role in roles)
    release = [("release", RELEASE[0])] if alike else [(name, name) for name in RELEASE]
    for label, name in (("root", "root"), *release):
        role = made.signed.roles[name]
        old = before.signed.roles[name].keyids if before else []
        lines.append(f"{label} keys, of which {role.threshold} must sign:")
        for keyid in (*role.keyids, *(each for each in old if each not in role.keyids)):
            state = "revoked" if keyid not in role.keyids else "" if keyid in old else "new"
            lines.append(f"  {keyid} {state}".rstrip())
    names = ", ".join(sorted(f"{keyid[:16]}…" for keyid in made.signatures)) or "nobody"
    return [*lines, f"signed so far by {names}"]


def _sign_root(
    folder: Path,
    made: Metadata[Root],
    before: Metadata[Root] | None,
    signers: Sequence[CryptoSigner],
) -> int:
    known = {*made.signed.roles["root"].keyids}
    known |= set(before.signed.roles["root"].keyids) if before else set()
    for signer in signers:
        if signer.public_key.keyid not in known:
            raise InputError(
                f"the key {signer.public_key.keyid[:16]}… is no root key, neither of this root nor "
                "of the one before",
                "sign with another key",
            )
        made.sign(signer, append=True)
    result = made.signed.get_root_verification_result(
        before.signed if before else None, made.signed_bytes, made.signatures
    )
    if not result.verified:
        write_atomic(folder / DRAFT, made.to_bytes(_SERIALIZER))
        return max(result.first.missing, result.second.missing)
    write_atomic(folder / f"{made.signed.version}.root.json", made.to_bytes(_SERIALIZER))
    (folder / DRAFT).unlink(missing_ok=True)
    return 0


def sign_files(
    folder: Path,
    files: Mapping[str, Path],
    signers: Sequence[CryptoSigner],
    days: int,
    withdrawn: Sequence[str] = (),
) -> list[str]:
    """Sign files beside those that are signed already; all signatures are made anew.

    Args:
        files: name in the metadata → file.
        signers: the release keys.
        days: until the signatures expire.
        withdrawn: names that are signed no longer.

    Returns:
        The names that are signed now, sorted.

    Raises:
        InputError: there is no root, the keys are not its release keys, or a name to withdraw is
            not there.
        MachineError: a file cannot be read, or the folder not written.
    """
    with _alone(folder):
        return _sign_files(folder, files, signers, days, withdrawn)


def _sign_files(
    folder: Path,
    files: Mapping[str, Path],
    signers: Sequence[CryptoSigner],
    days: int,
    withdrawn: Sequence[str],
) -> list[str]:
    root = newest_root(folder)
    if root is None:
        raise InputError(f"{folder} has no root", "make one: ddlce keys root")
    old = _published(folder, "targets")
    targets = {} if old is None else dict(old.signed.targets)
    for name in withdrawn:
        if targets.pop(name, None) is None:
            raise InputError(
                f"{name} is not signed in {folder}", "name it as `ddlce keys sign` lists it"
            )
    targets |= {name: TargetFile.from_file(name, str(path)) for name, path in files.items()}
    expires = _expiry(days)
    # Only where the time is given: else who signs again wants later signatures.
    unchanged = old is not None and old.signed.targets == targets
    if EPOCH in os.environ and unchanged and _stand(folder, root, expires):
        return sorted(targets)
    version = _next(_newest(folder, "targets"))
    made = Metadata(Targets(version, expires=expires, targets=targets))
    texts = {f"{made.signed.version}.targets.json": _signed(root, "targets", made, signers)}
    meta = _meta(made.signed.version, *texts.values())
    snapshot = Metadata(
        Snapshot(_next(_newest(folder, "snapshot")), None, expires, {"targets.json": meta})
    )
    name = f"{snapshot.signed.version}.snapshot.json"
    texts[name] = _signed(root, "snapshot", snapshot, signers)
    stamp = Metadata(
        Timestamp(
            _next(_load(folder / "timestamp.json")),
            None,
            expires,
            _meta(snapshot.signed.version, texts[name]),
        )
    )
    texts["timestamp.json"] = _signed(root, "timestamp", stamp, signers)
    for name, data in texts.items():
        write_atomic(folder / name, data)
    return sorted(targets)


def signed_names(folder: Path) -> list[str]:
    """The names that are signed now, sorted.

    Raises:
        WorkError: the metadata are damaged.
    """
    targets = _published(folder, "targets")
    return sorted(targets.signed.targets) if targets else []


def _signed(
    root: Metadata[Root], role: str, made: Metadata[Any], signers: Sequence[CryptoSigner]
) -> bytes:
    for signer in signers:
        made.sign(signer, append=True)
    try:
        root.signed.verify_delegate(role, made.signed_bytes, made.signatures)
    except UnsignedMetadataError as error:
        raise InputError(
            f"these keys cannot sign for root {root.signed.version}: {error}",
            "sign with its release keys, or make a root that names these",
        ) from error
    return made.to_bytes(_SERIALIZER)


def newest_root(folder: Path) -> Metadata[Root] | None:
    """The newest published root, or None.

    Raises:
        WorkError: it is damaged.
    """
    return _newest(folder, "root")


def _stand(folder: Path, root: Metadata[Root], expires: datetime) -> bool:
    """Whether all that clients get is signed by this root's keys, and expires then."""
    for role in RELEASE:
        made = _published(folder, role)
        if made is None or made.signed.expires != expires:
            return False
        try:
            root.signed.verify_delegate(role, made.signed_bytes, made.signatures)
        except UnsignedMetadataError:
            return False
    return True


def _published(folder: Path, role: str) -> Metadata[Any] | None:
    """What clients get: a killed run may have left newer files that `timestamp.json` knows not."""
    stamp = _load(folder / "timestamp.json")
    if stamp is None or role == "timestamp":
        return stamp
    snapshot = _load(folder / f"{stamp.signed.snapshot_meta.version}.snapshot.json")
    if snapshot is None or role == "snapshot":
        return snapshot
    return _load(folder / f"{snapshot.signed.meta[f'{role}.json'].version}.{role}.json")


def _newest(folder: Path, role: str) -> Metadata[Any] | None:
    numbers = [
        int(path.name.split(".")[0])
        for path in folder.glob(f"[0-9]*.{role}.json")
        if path.name.split(".")[0].isdecimal()
    ]
    return _load(folder / f"{max(numbers)}.{role}.json") if numbers else None


def _load(path: Path) -> Metadata[Any] | None:
    try:
        return Metadata.from_bytes(path.read_bytes())
    except FileNotFoundError:
        return None
    except RepositoryError as error:
        raise WorkError(f"{path}: damaged: {error}", "restore it from a copy") from error


def _next(old: Metadata[Any] | None) -> int:
    return old.signed.version + 1 if old else 1


def _meta(version: int, data: bytes) -> MetaFile:
    return MetaFile.from_data(version, data, ["sha256"])


def _expiry(days: int) -> datetime:
    """So many days from now, or from SOURCE_DATE_EPOCH: the same inputs give the same bytes."""
    said = os.environ.get(EPOCH, "")
    now = datetime.fromtimestamp(int(said), UTC) if said.isdecimal() else datetime.now(UTC)
    return now.replace(microsecond=0) + timedelta(days=days)
