"""One channel for several releases: which of their packages its index names.

A root that bundles have filled has one, and so has a published site.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from ddlce.engine.index import index_is_current, publish_index
from ddlce.engine.versions import version_key
from ddlce.errors import InputError, SourceError, not_the_locked
from ddlce.files import sha256_file
from ddlce.model.envlock import EnvLock, LockedPackage
from ddlce.model.manifest import OWN_CHANNEL

#: What in a build string tells builds of one variant apart; of any length, as a root has releases
#: of several versions of ddlce.
DIGEST = re.compile(r"h[0-9a-f]{8,}(?=_)")


def fill(
    channel: Path,
    releases: Iterable[EnvLock],
    others: Iterable[EnvLock],
    files: Mapping[str, Path],
    *,
    timeless: bool = False,
) -> None:
    """Make the channel have the packages of these locks; call it under the channel's lock.

    Args:
        releases: those that users choose from.
        others: those whose packages stay beside the index.
        files: name → file of packages that the channel may not have yet.
        timeless: see `publish_index`.

    Raises:
        WorkError: a package cannot be read; the channel is as it was.
    """
    named, beside = (
        [
            (p.subdir, path)
            for p in group
            if (path := files.get(p.file) or (channel / p.subdir / p.file).resolve()).is_file()
        ]
        for group in _divide(list(releases), list(others))
    )
    if not index_is_current(channel, named, beside):
        publish_index(channel, named, beside, timeless=timeless)


def locked_file(package: LockedPackage, channel: Path) -> Path:
    """A file of our own channel for a locked package, checked.

    Raises:
        InputError: the package is of another channel.
        SourceError: it is missing, or is not the locked one.
    """
    if package.channel != OWN_CHANNEL:
        raise InputError(
            f"{package.file} is of the channel {package.channel}, and our own packages alone are "
            "handed over",
            "leave that channel out of the manifest, and lock again",
        )
    return checked_file(package, channel)


def checked_file(package: LockedPackage, channel: Path) -> Path:
    """A locked package's file in a channel's folder, of whatever channel it is.

    Raises:
        SourceError: it is missing, or is not the locked one.
    """
    path = channel / package.subdir / package.file
    if not path.is_file():
        raise SourceError(f"{path}: missing", "build and index it: ddlce build && ddlce index")
    if sha256_file(path) != package.sha256:
        raise SourceError(
            not_the_locked(path, package.sha256),
            "lock again: ddlce lock, or take the channel that the lock was made with",
        )
    return path


def _divide(releases: list[EnvLock], others: list[EnvLock]) -> list[list[LockedPackage]]:
    """The packages that the channel's index names, and those that are in it beside.

    A solver must not choose between two builds of one version. So the index names that of the
    newest release; among equals, of the first in the list.
    """
    named: dict[tuple[str, ...], LockedPackage] = {}
    for lock in sorted(releases, key=lambda lock: version_key(lock.release), reverse=True):
        for package in lock.packages:
            variant = DIGEST.sub("", package.build)
            named.setdefault((package.subdir, package.name, package.version, variant), package)
    files = {(p.subdir, p.file): p for lock in (*releases, *others) for p in lock.packages}
    for package in named.values():
        del files[package.subdir, package.file]
    return [
        [package for package in group if package.channel == OWN_CHANNEL]
        for group in (named.values(), files.values())
    ]
