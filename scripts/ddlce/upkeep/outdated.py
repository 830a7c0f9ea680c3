"""Locked sources of which there are newer versions, as the clients that fetch them say."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import count
from threading import Event

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from ddlce.engine.variants import target_of
from ddlce.errors import InputError
from ddlce.locks import scratch
from ddlce.model.source import PREFIXES, Client, Source
from ddlce.platforms import BUILD_PLATFORM, get_platform
from ddlce.recipes.sets import fixed_versions
from ddlce.settings import SOURCES_LOCK, Settings
from ddlce.sources.apt import Apt, newer
from ddlce.sources.client import DownloadError
from ddlce.sources.locking import load_lock
from ddlce.sources.pip import ANY, pip_constraints, pip_versions, pip_withdrawn
from ddlce.wheels.depends import applying, marker_environment

#: pips at once: each waits for the registry most of the time.
PIPS = 4


@dataclass(frozen=True)
class Place:
    """Where newer versions of a locked package are looked for.

    Attributes:
        client, package: as in `sources.lock`.
        subdir: the platform, or None where one file serves all.
        suite, area: of Debian's archive.
        local: the local part of a wheel's version, `cpu`: versions without it are of another build.
    """

    client: Client
    package: str
    subdir: str | None = None
    suite: str = ""
    area: str = ""
    local: str = ""

    @property
    def spec(self) -> str:
        """As a request: `pypi:numpy`, `pypi-sdist:horovod`."""
        return f"{PREFIXES.get(self.client, self.client)}:{self.package}"

    @property
    def where(self) -> str:
        """What sets it apart from others of its name: `linux-ppc64le, trixie`, or ""."""
        build = f"+{self.local}" if self.local else ""
        return ", ".join(part for part in (self.subdir, self.suite, self.area, build) if part)


@dataclass(frozen=True)
class Outdated:
    """A locked package with a newer version.

    Attributes:
        locked: the newest version that is locked; of Debian's, the oldest.
        newest: the newest that there is.
        security: Debian's security archive has a newer one than the locked.
        held_by: the locked wheels that do not allow the newest, `torch 2.13.0 (triton==3.7.1)`, and
            the tables that take another, `wheels.yaml (pillow==12.3.0)`.
    """

    place: Place
    locked: str
    newest: str
    security: bool = False
    held_by: tuple[str, ...] = ()


@dataclass(frozen=True)
class Withdrawn:
    """A locked wheel that its authors have withdrawn, with the reason in their words."""

    place: Place
    locked: str
    reason: str


@dataclass(frozen=True)
class Answer:
    """What the clients say.

    Attributes:
        asked: the number of packages.
        outdated: security updates first, then by name.
        unknown: of which packages the client knows nothing, → its words.
        withdrawn: wheels whose locked version was withdrawn by its authors, if that was asked.
    """

    asked: int
    outdated: tuple[Outdated, ...]
    unknown: dict[str, str]
    withdrawn: tuple[Withdrawn, ...] = ()


def find_outdated(
    settings: Settings, patterns: Sequence[str] = (), *, withdrawn: bool = False
) -> Answer:
    """Ask pip and apt for newer versions of what is locked.

    Args:
        patterns: which packages, as `pypi:torch*` or `debian-source:*`; all by default.
        withdrawn: ask for withdrawn wheels, too.

    Raises:
        InputError: a pattern fits no locked package.
        MachineError: there is no pip, or no apt.
    """
    compared = _compared(load_lock(settings).sources)
    chosen = choose(compared, patterns)
    found: dict[Place, Outdated | DownloadError | None] = {}
    found |= _ask_pip(settings, {p: v for p, v in chosen.items() if p.client.startswith("pypi")})
    found |= _ask_apt(settings, {p: v for p, v in chosen.items() if p.client.startswith("debian")})
    fixed = fixed_versions(settings)
    outdated = [
        replace(each, held_by=tuple(_holders(settings, each, compared, fixed)))
        for each in found.values()
        if isinstance(each, Outdated)
    ]
    ordered = sorted(outdated, key=lambda o: (not o.security, o.place.spec, o.place.where))
    unknown = {p.spec: e.reason for p, e in found.items() if isinstance(e, DownloadError)}
    gone: list[Withdrawn] = []
    if withdrawn:
        try:
            gone = ask_withdrawn(settings, chosen)
        except DownloadError as error:
            unknown["whether wheels were withdrawn"] = error.reason
    return Answer(len(found), tuple(ordered), unknown, tuple(gone))


def choose(locked: dict[Place, Source], patterns: Sequence[str]) -> dict[Place, Source]:
    """The places that some patterns name.

    Raises:
        InputError: a pattern fits none.
    """
    for pattern in patterns:
        if not any(fnmatchcase(place.spec, pattern) for place in locked):
            raise InputError(
                f"{SOURCES_LOCK} has no package {pattern!r}",
                "write pypi:NAME, debian-source:NAME or debian-binary:NAME; * stands for any part",
            )
    wanted = patterns or ["*"]
    return {p: s for p, s in locked.items() if any(fnmatchcase(p.spec, w) for w in wanted)}


def _compared(sources: Iterable[Source]) -> dict[Place, Source]:
    """What newer versions are compared with; an address has no client that knows newer ones.

    Of wheels the newest that is locked: older ones are there on purpose. Of Debian's packages the
    oldest: each file of a source has a version of its own, and the patches may be the older one.
    """
    found: dict[Place, Source] = {}
    for source in sources:
        if source.client == "url":
            continue
        place = _place(source)
        old = found.setdefault(place, source)
        one, other = (old, source) if source.client.startswith("debian") else (source, old)
        if _is_newer(place, one.version, other.version):
            found[place] = source
    return found


def _place(source: Source) -> Place:
    debian = source.client.startswith("debian")
    local = "" if debian else Version(source.version).local or ""
    return Place(
        *(source.client, source.package, source.subdir, source.suite, source.area), local=local
    )


def _is_newer(place: Place, one: str, other: str) -> bool:
    if place.client.startswith("debian"):
        return one != other and newer(one, other) == one
    return Version(one) > Version(other)


def _ask_pip(
    settings: Settings, wanted: dict[Place, Source]
) -> dict[Place, Outdated | DownloadError | None]:
    stop = Event()
    try:
        with scratch(settings.sources, ".ask-") as folder:
            allowed = pip_constraints(folder, stop) if wanted else {}
    except DownloadError as error:
        return {place: error for place in wanted}

    def ask(place: Place) -> Outdated | DownloadError | None:
        sdist = place.client == "pypi-sdist"
        target = ANY if sdist else target_of(settings.recipes, place.subdir or BUILD_PLATFORM)
        try:
            with scratch(settings.sources, ".ask-") as folder:
                versions = pip_versions(place.package, folder, stop, sdist=sdist, target=target)
        except DownloadError as error:
            return error
        specifier = allowed.get(canonicalize_name(place.package), SpecifierSet())
        fitting = [
            v
            for v in versions
            if (Version(v).local or "") == place.local and specifier.contains(v, prereleases=True)
        ]
        newest = max(fitting, key=Version, default="")
        locked = wanted[place].version
        outdated = newest and _is_newer(place, newest, locked)
        return Outdated(place, locked, newest) if outdated else None

    with ThreadPoolExecutor(PIPS) as pool:
        try:
            return dict(zip(wanted, pool.map(ask, wanted), strict=True))
        except BaseException:
            stop.set()
            raise


def ask_withdrawn(settings: Settings, chosen: dict[Place, Source]) -> list[Withdrawn]:
    """The locked wheels that were withdrawn. pip is asked for each platform, once for each name."""
    asked: dict[tuple[str, int], dict[str, Place]] = defaultdict(dict)
    for place in chosen:
        if place.client == "pypi-wheel":
            subdir, name = place.subdir or BUILD_PLATFORM, canonicalize_name(place.package)
            turn = next(n for n in count() if name not in asked[subdir, n])
            asked[subdir, turn][name] = place
    found = []
    for (subdir, _), places in asked.items():
        wanted = [f"{name}=={chosen[place].version}" for name, place in places.items()]
        with scratch(settings.sources, ".ask-") as folder:
            target = target_of(settings.recipes, subdir)
            said = pip_withdrawn(wanted, folder, Event(), target)
        found += [
            Withdrawn(place, chosen[place].version, said[name])
            for name, place in places.items()
            if name in said
        ]
    return sorted(found, key=lambda each: (each.place.spec, each.place.where))


def _ask_apt(
    settings: Settings, wanted: dict[Place, Source]
) -> dict[Place, Outdated | DownloadError | None]:
    archives: dict[tuple[str, str, str, bool], list[Place]] = defaultdict(list)
    for place in wanted:
        architecture = get_platform(place.subdir or BUILD_PLATFORM).debian
        binary = place.client == "debian-binary"
        archives[architecture, place.suite, place.area, binary].append(place)
    found: dict[Place, Outdated | DownloadError | None] = {}
    for (architecture, suite, area, binary), places in archives.items():
        apt = Apt(settings.cache / "apt", architecture, suite, area)
        try:
            offers = apt.offers([place.package for place in places], binary)
        except DownloadError as error:  # of this archive: the others are asked all the same
            found |= {place: error for place in places}
            continue
        for place in places:
            locked = wanted[place].version
            known = offers.get(place.package, [])
            more = [offer for offer in known if _is_newer(place, offer.version, locked)]
            if more:
                newest = functools.reduce(newer, (offer.version for offer in more))
                security = any(offer.security for offer in more)
                found[place] = Outdated(place, locked, newest, security)
            else:
                unknown = DownloadError(f"apt does not know {place.package}", again=False)
                found[place] = None if known else unknown
    return found


def _holders(
    settings: Settings,
    outdated: Outdated,
    locked: dict[Place, Source],
    fixed: dict[str, dict[str, str]],
) -> Iterator[str]:
    """The tables, and the locked wheels of the platform, that do not allow the newest version."""
    place = outdated.place
    if place.client != "pypi-wheel":
        return
    wanted = canonicalize_name(place.package)
    for table, version in fixed.get(wanted, {}).items():
        if version == outdated.locked:
            yield f"{table} ({wanted}=={version})"
    environment = marker_environment(target_of(settings.recipes, place.subdir or BUILD_PLATFORM))
    for source in locked.values():
        for requirement in applying(
            source.wheel.requires_dist if source.wheel else (), environment
        ):
            name, allowed = canonicalize_name(requirement.name), requirement.specifier
            if name == wanted and not allowed.contains(outdated.newest, prereleases=True):
                yield f"{source.package} {source.version} ({name}{allowed})"
