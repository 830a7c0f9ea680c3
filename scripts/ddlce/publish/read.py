"""Reads a site: which releases it has, and what is needed to install one of them."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from ddlce.errors import SourceError
from ddlce.files import write_atomic
from ddlce.lock import channel_address
from ddlce.locks import scratch
from ddlce.model.document import first_problem
from ddlce.publish.listing import CONDARC, FOLDER, LISTING, Listing
from ddlce.settings import Settings
from ddlce.trust.policy import Signatures

#: Bytes that a listing or a lock has at most.
LARGEST = 32 << 20


@dataclass(frozen=True)
class Fetched:
    """A release that a site offers.

    Attributes:
        tree: a folder with the condarc template, for as long as it is needed.
        lock: the file with its lock.
        channel: the address of the site's channel.
    """

    tree: Path
    lock: Path
    channel: str


@contextlib.contextmanager
def fetched(
    settings: Settings,
    site: str,
    env: str,
    platform: str,
    release: str | None,
    signatures: Signatures | None,
) -> Iterator[Fetched]:
    """A release of a site, for the length of a context.

    Args:
        settings: with the cache.
        site: its address, or its folder.
        env, platform: of the release.
        release: its version; None for the newest.
        signatures: whose are wanted; then only the listing that they signed is read.

    Raises:
        InputError: the site has no such release.
        SourceError: the site cannot be read, or a file is not the one that is listed or signed.
    """
    address = channel_address(site, "--from")
    listing = _listing(settings, address, signatures)
    found = listing.choose(env, platform, release, address)
    with scratch(settings.cache, "from-") as folder:
        lock = folder / found.lock
        for name, target in ((lock.name, lock), (CONDARC, folder / "channel" / CONDARC)):
            data = _read(f"{address}/{found.folder}", name)
            if hashlib.sha256(data).hexdigest() != found.files.get(name):
                raise SourceError(
                    f"{address}/{found.folder}/{name} is not the file that {LISTING} names",
                    "try again later; if it stays so, tell whoever keeps the site",
                )
            write_atomic(target, data)
        yield Fetched(folder, lock, f"{address}/channel")


def _listing(settings: Settings, address: str, signatures: Signatures | None) -> Listing:
    name = LISTING
    if signatures:
        from ddlce.trust.client import signed_digest

        digest = signed_digest(signatures, settings.cache, LISTING)
        name = f"{FOLDER}/{digest}.json"
    data = _read(address, name)
    if signatures and hashlib.sha256(data).hexdigest() != digest:
        raise SourceError(
            f"{address}/{name} is not the signed one", "nothing was written; tell its keeper"
        )
    try:
        return Listing.model_validate_json(data)
    except ValidationError as error:
        raise SourceError(
            f"{address}/{name}: no list of releases: {first_problem(error)}",
            "name the top of a site that `ddlce publish` wrote",
        ) from error


def _read(address: str, name: str) -> bytes:
    """A small file of the site."""
    from ddlce.trust.fetcher import fetch_bytes

    hint = "name the top of a site that `ddlce publish` wrote, as a browser reaches it"
    return fetch_bytes(f"{address}/{name}", LARGEST, hint)
