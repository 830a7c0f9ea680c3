"""The catalogue: what the locked environments have, how it was verified, and what is absent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ddlce.absent import ABSENT, load_all_absent
from ddlce.env.layout import LOCK_COPY, Layout
from ddlce.lock import locks_folder
from ddlce.model.envlock import EnvLock, LockedPackage
from ddlce.model.manifest import OWN_CHANNEL
from ddlce.origins import Origins, load_origins
from ddlce.platforms import BUILD_PLATFORM
from ddlce.settings import Settings


@dataclass(frozen=True)
class Listed:
    """One version of a package.

    Attributes:
        name, version: as in its file's name.
        licence: SPDX expression, or "".
        platforms: conda platforms that an environment with it is locked for.
        environments: those environments.
        verified: how its bytes were tested, in words.
        origin: where its files come from, as `Origins.of` says; "" away from a tree.
    """

    name: str
    version: str
    licence: str
    platforms: list[str]
    environments: list[str]
    verified: str
    origin: str


@dataclass(frozen=True)
class Missing:
    """What is not there.

    Attributes:
        name: the package, or its recipe.
        where: the platform, or the platform and its CUDA, "linux-ppc64le-cuda124"; "" for all.
        why: the reason.
    """

    name: str
    where: str
    why: str


def list_packages(settings: Settings) -> list[Listed]:
    """Every version of a package that an environment's lock names, sorted by name.

    The locks are the tree's or, away from a tree, those of the default releases under the root.

    Raises:
        InputError: a lock is damaged, or there is neither a tree nor a release.
    """
    by_version: dict[tuple[str, str], list[tuple[EnvLock, LockedPackage]]] = {}
    installed = [] if settings.repo else _installed_locks(settings)
    for path in installed or sorted(locks_folder(settings).glob("*.lock")):
        lock = EnvLock.load(path)
        for package in lock.packages:
            by_version.setdefault((package.name, package.version), []).append((lock, package))
    origins = load_origins(settings)
    return [_listed(*names, uses, origins) for names, uses in sorted(by_version.items())]


def list_missing(settings: Settings) -> list[Missing]:
    """What is absent, sorted by name. The reasons are in the tree; away from it there are none.

    Raises:
        InputError: the table of reasons is wrong.
    """
    if settings.repo is None:
        return []
    reasons = load_all_absent(settings.recipes / ABSENT)
    found = [
        Missing(name, where, why) for where, table in reasons.items() for name, why in table.items()
    ]
    return sorted(found, key=lambda missing: (missing.name, missing.where))


def _installed_locks(settings: Settings) -> list[Path]:
    layout = Layout(settings.root)
    names = {prefix.parent.name for prefix in layout.releases()}
    found = (layout.current(name) for name in sorted(names))
    return [prefix / LOCK_COPY for prefix in found if prefix]


def _listed(
    name: str,
    version: str,
    uses: Sequence[tuple[EnvLock, LockedPackage]],
    origins: Origins | None,
) -> Listed:
    licences = {package.license or "" for _, package in uses}
    found = [origins.of(package) for _, package in uses] if origins else []
    hows = {how_verified(lock, package) for lock, package in uses}
    return Listed(
        name=name,
        version=version,
        licence=" / ".join(sorted(licences - {""})),
        platforms=sorted({lock.platform for lock, _ in uses}),
        environments=sorted({lock.env for lock, _ in uses}),
        verified="; ".join(sorted(hows)),
        origin=", ".join(sorted(set().union(*found))),
    )


def how_verified(lock: EnvLock, package: LockedPackage) -> str:
    """How a locked package was tested.

    Ours is in the channel only after its tests have passed where it was built.
    """
    if package.channel != OWN_CHANNEL:
        return "not by us: another channel's"
    if package.subdir == "noarch":
        return f"tests on {BUILD_PLATFORM}"
    emulated = "" if package.subdir == BUILD_PLATFORM else ", emulated"
    for_cuda = "__cuda" in lock.virtual_packages and package.build.startswith("cuda")
    return f"tests on {package.subdir}{emulated}{', without a GPU' if for_cuda else ''}"
