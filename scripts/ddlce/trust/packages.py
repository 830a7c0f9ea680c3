"""Packages that no lock names: the signed index of their channel has to."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from ddlce import jsontext
from ddlce.errors import SourceError
from ddlce.model.envlock import LockedPackage
from ddlce.model.manifest import OWN_CHANNEL
from ddlce.trust.client import ASK, signed_digest
from ddlce.trust.policy import Signatures

#: Bytes of an index at most.
LARGEST = 256 << 20


def check_packages(
    wanted: Signatures,
    cache: Path,
    packages: Iterable[LockedPackage],
    channels: Mapping[str, str],
) -> None:
    """Make sure that packages are in the index of our channel that this machine's trusted sign.

    Args:
        cache: the user's cache, where it is kept what was seen before.
        channels: name → address.

    Raises:
        SourceError: a package is of another channel, or is not in the index; or the index is not
            the signed one.
        DdlceError: as `check_signed`, of the metadata.
    """
    from ddlce.trust.fetcher import fetch_bytes

    indexes: dict[str, dict[str, str]] = {}
    for package in packages:
        if package.channel != OWN_CHANNEL:
            raise SourceError(
                f"{package.file} is of the channel {package.channel}, which nobody signs",
                "choose packages of our own channel, or install it with another program",
            )
        address = channels[OWN_CHANNEL].rstrip("/")
        if package.subdir not in indexes:
            name = f"{package.subdir}/repodata.json"
            digest = signed_digest(wanted, cache, name)
            data = fetch_bytes(f"{address}/{name}", LARGEST, ASK)
            if hashlib.sha256(data).hexdigest() != digest:
                raise SourceError(f"{address}/{name} is not the signed one", ASK)
            indexes[package.subdir] = _digests(data, f"{address}/{name}")
        if indexes[package.subdir].get(package.file) != package.sha256:
            raise SourceError(f"{package.file} is not in the signed index of {address}", ASK)


def _digests(data: bytes, where: str) -> dict[str, str]:
    """File → sha256 of each package of an index."""
    try:
        said = jsontext.load(data)
        assert isinstance(said, dict)
        records = {**said.get("packages", {}), **said.get("packages.conda", {})}
        return {str(file): str(record["sha256"]) for file, record in records.items()}
    except (AssertionError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise SourceError(f"{where} is no index", ASK) from error
