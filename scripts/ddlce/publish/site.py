"""Writes a site. A reader sees what was there before, or what is there now; so does a killed run.

What has a name of its own is written first, then the signatures, then the listing. What the last
listing named stays until the next run, for who has just read it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from ddlce.bundle.write import write_bundle
from ddlce.errors import InputError, WorkError
from ddlce.files import explain_os_errors, make_folder, sha256_file, write_atomic
from ddlce.model.channel import SBOMS
from ddlce.model.document import first_problem
from ddlce.model.envlock import EnvLock
from ddlce.ownership import check_place
from ddlce.publish.listing import CONDARC, FOLDER, LISTING, Listed, Listing, listed
from ddlce.publish.provenance import STATEMENTS, statements
from ddlce.settings import Settings
from ddlce.sharedchannel import fill, locked_file
from ddlce.trees import remove_tree
from ddlce.trust.names import LOCK, METADATA, index_files, lock_name, release_name
from ddlce.waiting import OnWait, waiting_lock

if TYPE_CHECKING:
    from securesystemslib.signer import CryptoSigner


@dataclass(frozen=True)
class Offer:
    """A release that is to be published.

    Attributes:
        lock: its packages.
        sboms: name → text.
        bundle: whether it is there as one file, too.
    """

    lock: EnvLock
    sboms: Mapping[str, str] = field(default_factory=dict)
    bundle: bool = True


@dataclass(frozen=True)
class Signing:
    """Who signs the site.

    Attributes:
        signers: the release keys; none where nothing is signed.
        days: until the signatures expire.
        roots: a folder with the root metadata.
    """

    signers: Sequence[CryptoSigner]
    days: int
    roots: Path


def publish(
    settings: Settings,
    folder: Path,
    offers: Sequence[Offer],
    channel: Path,
    signing: Signing,
    *,
    keep: int = 0,
    withdrawn: Sequence[str] = (),
    on_wait: OnWait | None = None,
) -> Listing:
    """Add releases to a site, or make a new site.

    Args:
        settings: the tree with the condarc template.
        offers: the releases. One with the name of a release that is there takes its place.
        keep: how many releases of each environment and platform stay; 0: all.
        withdrawn: names of releases that go, such as `ddl-ce-2026.11-linux-64`.

    Returns:
        What the site has now.

    Raises:
        InputError: a package is of another channel, a name is unknown, or the site was signed and
            no key is named now.
        SourceError: the channel does not have all of the packages.
        MachineError: the folder cannot be written, or others could change it.
    """
    check_place(folder, "the site")
    with explain_os_errors(folder):
        make_folder(folder)
    with waiting_lock(folder / ".lock", on_wait):
        metadata = folder / "channel" / METADATA
        if not signing.signers and (metadata / "timestamp.json").exists():
            raise InputError(
                f"{folder} is signed, and would be refused without new signatures",
                "name the release key: --sign FILE",
            )
        before = read_listing(folder)
        files = {p.file: locked_file(p, channel) for offer in offers for p in offer.lock.packages}
        new = [_write_release(settings, folder, channel, offer, files, signing) for offer in offers]
        after = before.with_releases(new, keep, list(withdrawn))
        gone = [one for one in before.releases if one.name in withdrawn]
        _fill_channel(folder, after, [one for one in before.releases if one not in gone], files)
        data = after.to_json()
        named = folder / FOLDER / f"{hashlib.sha256(data).hexdigest()}.json"
        write_atomic(named, data)
        if signing.signers:
            _sign(settings, folder, after, gone, named, signing)
        if not (folder / LISTING).is_file() or (folder / LISTING).read_bytes() != data:
            write_atomic(folder / LISTING, data)
        _prune(folder, after, [one for one in before.releases if one not in gone])
    return after


def read_listing(folder: Path) -> Listing:
    """The listing of a site that may be new.

    Raises:
        WorkError: it is damaged.
    """
    path = folder / LISTING
    if not path.exists():
        return Listing(version=1, releases=[])
    try:
        return Listing.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise WorkError(
            f"{path}: damaged: {first_problem(error)}", "restore it from a copy"
        ) from error


def _write_release(
    settings: Settings,
    folder: Path,
    channel: Path,
    offer: Offer,
    files: Mapping[str, Path],
    signing: Signing,
) -> Listed:
    """Write the files of one release, each in one step; `files` are its packages', checked."""
    lock = offer.lock
    place = folder / listed(lock, {}).folder
    texts = {
        lock_name(lock): lock.to_yaml(),
        CONDARC: (settings.tree / "channel" / CONDARC).read_text("utf-8"),
        **offer.sboms,
    }
    if signing.signers:
        name = f"{lock.env}-{lock.release}-{lock.platform}{STATEMENTS}"
        texts[name] = statements(lock, files, signing.signers)
    for name, text in texts.items():
        write_atomic(place / name, text)
    paths = [place / name for name in texts]
    if offer.bundle:
        paths.append(Path(write_bundle(settings, lock, channel, place, offer.sboms).path))
    return listed(lock, {path.name: sha256_file(path) for path in paths})


def _fill_channel(
    folder: Path, after: Listing, before: Sequence[Listed], files: Mapping[str, Path]
) -> None:
    """Bring the packages into the site's channel, with the SBOMs of the releases that stay."""
    channel = folder / "channel"
    locks, others = (
        [EnvLock.load(folder / one.folder / one.lock) for one in group]
        for group in (after.releases, before)
    )
    with waiting_lock(channel / ".lock"):
        fill(channel, locks, others, files, timeless=True)
    sboms = {path.name: path for one in after.releases for path in _sboms(folder, one)}
    for name, path in sboms.items():
        write_atomic(channel / SBOMS / name, path.read_bytes())
    for path in (channel / SBOMS).glob("[!.]*"):
        if path.name not in sboms:
            path.unlink()


def _sboms(folder: Path, one: Listed) -> list[Path]:
    return [folder / one.folder / name for name in one.files if name.endswith(".json")]


def _sign(
    settings: Settings,
    folder: Path,
    after: Listing,
    withdrawn: Sequence[Listed],
    listing: Path,
    signing: Signing,
) -> None:
    """Sign what the site has. Roots that it has not yet come from where they are kept.

    The locks of releases that it had stay signed, for whoever has installed them, unless these
    releases are withdrawn.
    """
    from ddlce.trust.repository import sign_files, signed_names

    channel = folder / "channel"
    metadata = channel / METADATA
    for root in sorted(signing.roots.glob("[0-9]*.root.json")):
        if not (metadata / root.name).exists():
            write_atomic(metadata / root.name, root.read_bytes())
    files = {LISTING: listing, **index_files(channel)}
    files |= {path.name: path for path in folder.glob("ddlce*") if path.is_file()}
    for one in after.releases:
        files |= {name: folder / one.folder / name for name in one.files if name != CONDARC}
    if settings.sources_lock.is_file():
        files[settings.sources_lock.name] = settings.sources_lock
    # Of a version that is withdrawn, what was published of it before, too.
    bad = [release_name(r.env, r.release, "?" * 8, r.platform) + LOCK for r in withdrawn]
    gone = [
        name
        for name in signed_names(metadata)
        if name not in files
        and (not name.endswith(LOCK) or any(fnmatchcase(name, each) for each in bad))
    ]
    sign_files(metadata, files, signing.signers, signing.days, gone)


def _prune(folder: Path, after: Listing, before: Sequence[Listed]) -> None:
    """Remove what neither this listing nor the last one names."""
    stay = {folder / one.folder for one in (*before, *after.releases)}
    texts = {after.to_json(), Listing(version=1, releases=list(before)).to_json()}
    names = {f"{hashlib.sha256(text).hexdigest()}.json" for text in texts}
    with explain_os_errors(folder):
        for path in (folder / FOLDER).iterdir():
            if path.is_dir() and path not in stay:
                remove_tree(path)
            elif path.is_file() and path.name not in names:
                path.unlink()
        for one in after.releases:
            for path in (folder / one.folder).iterdir():
                if path.name not in one.files:
                    remove_tree(path) if path.is_dir() else path.unlink()
