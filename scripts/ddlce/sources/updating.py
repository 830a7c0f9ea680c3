"""Moving locked sources to newer versions: one, or a group whose wheels must fit together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from threading import Event

from packaging.utils import canonicalize_name
from packaging.version import Version

from ddlce.engine.variants import target_of
from ddlce.errors import InputError, SourceError
from ddlce.locks import scratch
from ddlce.model.source import PREFIXES, Source, WheelMetadata
from ddlce.model.target import Target
from ddlce.platforms import BUILD_PLATFORM
from ddlce.recipes.sets import fixed_versions, known_wheels, set_names
from ddlce.settings import SOURCES_LOCK, Settings
from ddlce.sources.client import DownloadError
from ddlce.sources.locking import changing, load_lock, lock_sources, same_files
from ddlce.sources.pip import Resolved, pip_resolve, pip_versions
from ddlce.sources.resolve import Request, Resolver, merged
from ddlce.wheels.depends import applying, marker_environment

#: What makes a word a pattern for several packages.
WILD = "*?["


@dataclass(frozen=True)
class Group:
    """What shall be moved.

    Attributes:
        requests: one for each package.
        left: packages that a pattern fits and that are left, → why.
    """

    requests: list[Request]
    left: dict[str, str]


def chosen(settings: Settings, words: Sequence[str]) -> Group:
    """The packages that are named, or that patterns as `pypi:jupyter*` fit.

    Raises:
        InputError: a word names no source, or a pattern fits no locked package.
    """
    locked: dict[str, list[Source]] = defaultdict(list)
    for source in load_lock(settings).sources:
        if source.client != "url":
            prefix = PREFIXES.get(source.client, source.client)
            locked[f"{prefix}:{source.package}"].append(source)
    fixed = fixed_versions(settings)
    requests: dict[str, Request] = {}
    left: dict[str, str] = {}
    for word in words:
        if not set(word) & set(WILD):
            requests[word] = Request.parse(word)
            continue
        fitting = [spec for spec in locked if fnmatchcase(spec, word)]
        if not fitting:
            raise InputError(f"{SOURCES_LOCK} has no package {word!r}", "see: ddlce outdated")
        for spec in fitting:
            request = Request.parse(spec)
            if spec.startswith("pypi:") and (versions := _side_by_side(locked[spec])):
                left[spec] = f"locked in {len(versions)} versions"
            elif tables := _tables(request, fixed):
                left[spec] = f"its version stands in {', '.join(tables)}"
            else:
                requests[spec] = request
    return Group([*requests.values()], left)


def update_sources(settings: Settings, requests: Sequence[Request]) -> Iterator[Source]:
    """Move locked packages to their newest versions, or to those requested, on each platform.

    One wheel is moved whatever others ask for. Of several wheels, pip's resolver chooses versions
    that fit one another and all other locked wheels; no version goes back. A platform for which
    there is no wheel of a version keeps its locked one.

    Returns:
        The entries of what has moved; those of wheels together, once all of them are here.

    Raises:
        InputError: a package is not locked, is an address, or is a wheel in several versions; or
            a newer wheel needs what is not there.
        SourceError: nothing fits, or a client does not deliver.
    """
    wheels = [request for request in requests if request.client == "pypi-wheel"]
    old = {request: _locked(settings, request) for request in requests}
    fixed = fixed_versions(settings)
    for request in requests:
        _refuse_fixed(request, _tables(request, fixed))
    if len(wheels) > 1:
        yield from _update_wheels(settings, {r: old[r] for r in wheels})
    for request in requests:
        if request.client != "pypi-wheel" or len(wheels) == 1:
            yield from _update_one(settings, request, old[request])


def _tables(request: Request, fixed: Mapping[str, dict[str, str]]) -> dict[str, str]:
    """The tables that take one version of a package alone → that version."""
    wheel = request.client == "pypi-wheel"
    return fixed.get(canonicalize_name(request.package), {}) if wheel else {}


def _refuse_fixed(request: Request, tables: Mapping[str, str]) -> None:
    """Refuse a version that a table does not take: the tree could not be built any more."""
    for table, version in tables.items():
        if request.version != version:
            raise InputError(
                f"recipes/wheels/{table} takes {request.package} {version} alone",
                "its comment may say why; write another version there first, and then ask for "
                f"pypi:{request.package}==VERSION",
            )


def _locked(settings: Settings, request: Request) -> list[Source]:
    """The entries of a package that can be moved."""
    sources = load_lock(settings).sources
    old = [s for s in sources if (s.client, s.package) == (request.client, request.package)]
    if not old or request.client == "url":
        raise InputError(
            f"{SOURCES_LOCK} has no {request.client} {request.package} to update",
            "lock it with `ddlce sources add`",
        )
    if request.client == "pypi-wheel" and (versions := _side_by_side(old)):
        raise InputError(
            f"{SOURCES_LOCK} has {request.package} in {len(versions)} versions, of which "
            f"one would be left: {', '.join(versions)}",
            f"lock the new one: `ddlce sources add --beside pypi:{request.package}==VERSION`; "
            "once no table names an old one, `ddlce sources sync` drops it",
        )
    return old


def _side_by_side(sources: Sequence[Source]) -> list[str]:
    """A wheel's versions, where a platform has several; else none: platforms may differ."""
    for subdir in {source.subdir for source in sources}:
        versions = {s.version for s in sources if s.subdir == subdir}
        if len(versions) > 1:
            return sorted(versions)
    return []


def _update_one(settings: Settings, request: Request, old: list[Source]) -> Iterator[Source]:
    places = sorted({(s.subdir or BUILD_PLATFORM, s.suite, s.area) for s in old})
    wheel = request.client == "pypi-wheel"
    for number, (subdir, suite, area) in enumerate(places):
        files = same_files([s for s in old if (s.suite, s.area) == (suite, area)])
        try:
            yield from lock_sources(settings, request, subdir, files=files, suite=suite, area=area)
        except SourceError:
            if not (
                number and wheel and request.version and _has_others(settings, request, subdir)
            ):
                raise


def _update_wheels(settings: Settings, old: Mapping[Request, list[Source]]) -> list[Source]:
    """Move wheels together; nothing is written until all of them are here and read."""
    target = target_of(settings.recipes)
    ours = {canonicalize_name(request.package) for request in old}
    known = known_wheels(settings)
    for name in set_names(settings):
        known |= known_wheels(settings, name)
    held = {n: k.version for n, k in known.items() if k.version and n not in ours}
    # pip resolves for the platform that builds.
    first = {request: _first(sources) for request, sources in old.items()}
    wanted = [_requirement(request, source) for request, source in first.items()]
    try:
        with scratch(settings.sources, ".update-") as folder:
            found = pip_resolve(wanted, held, folder, lambda _: None, Event(), target)
    except DownloadError as error:
        raise SourceError(
            f"{', '.join(wanted)}: {error.reason}",
            "all other wheels keep their versions: add those that are in the way to the group",
        ) from error
    new = {canonicalize_name(each.name): each for each in found}
    moved = {
        request: new[canonicalize_name(request.package)]
        for request, sources in old.items()
        if any(new[canonicalize_name(request.package)].version != s.version for s in sources)
    }
    _refuse_new_needs({r: (first[r], each) for r, each in moved.items()}, {*known, *ours}, target)
    entries = [
        entry
        for request, each in moved.items()
        for entry in _for_each_platform(settings, request, each.version, old[request])
    ]
    with changing(settings):
        merged(load_lock(settings), entries).dump(settings.sources_lock)
    return entries


def _for_each_platform(
    settings: Settings, request: Request, version: str, old: Sequence[Source]
) -> Iterator[Source]:
    """The wheels of a version that move. A platform without one, or with a newer, keeps its own."""
    exact = Request(request.client, request.package, version)
    wheel = _first(old)
    if wheel.version != version:
        (wheel,) = Resolver(settings).resolve(exact)
        yield wheel
    if wheel.subdir is None:
        return
    for source in sorted(old, key=lambda each: each.subdir or ""):
        is_other = source.subdir not in (None, BUILD_PLATFORM)
        # Whoever names a version may name an older one.
        if is_other and (request.version or Version(source.version) < Version(version)):
            try:
                yield from Resolver(settings, source.subdir or "").resolve(exact)
            except SourceError:
                if not _has_others(settings, exact, source.subdir or ""):
                    raise


def _has_others(settings: Settings, request: Request, subdir: str) -> bool:
    """Whether a platform has wheels of a package, but none of the version.

    pip says of a version that it does not find the same as of a registry that does not answer.
    """
    target = target_of(settings.recipes, subdir)
    with scratch(settings.sources, ".update-") as folder:
        try:
            there = pip_versions(request.package, folder, Event(), target=target)
        except DownloadError:
            return False
    return Version(request.version) not in map(Version, there)


def _first(sources: Sequence[Source]) -> Source:
    """The entry for the platform that builds; of a wheel that has none, the first."""
    return next((s for s in sources if s.subdir in (None, BUILD_PLATFORM)), sources[0])


def _requirement(request: Request, source: Source) -> str:
    if request.version:
        return f"{request.package}=={request.version}"
    return f"{request.package}>={Version(source.version).public}"


def _refuse_new_needs(
    moved: Mapping[Request, tuple[Source, Resolved]], there: set[str], target: Target
) -> None:
    """Refuse wheels that need what their locked versions did not, and what is not there."""
    environment = marker_environment(target)

    def needs(requires: Sequence[str]) -> set[str]:
        return {canonicalize_name(each.name) for each in applying(requires, environment)}

    lines, lacking = [], set[str]()
    for request, (source, each) in moved.items():
        wheel = source.wheel or WheelMetadata(name="", version="", tags=[], pure=True)
        if more := needs(each.requires) - needs(wheel.requires_dist) - there:
            lines.append(f"{request.package} {each.version} needs {', '.join(sorted(more))} too")
            lacking |= more
    if lines:
        names = " ".join(f"pypi:{name}" for name in sorted(lacking))
        raise InputError(
            "\n  ".join(lines), f"add it first: ddlce sources add --with-dependencies {names}"
        )
