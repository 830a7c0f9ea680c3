"""What is missing for some wheels: pip's choice of all that they need, with what is locked kept."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from threading import Event

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ddlce.engine.variants import target_of
from ddlce.errors import InputError, SourceError
from ddlce.locks import scratch
from ddlce.settings import Settings
from ddlce.sources.client import DownloadError
from ddlce.sources.pip import Resolved, pip_resolve
from ddlce.sources.resolve import Request
from ddlce.wheels.depends import KnownPackage, applying, marker_environment

#: Runs pip's resolver with some versions held.
Resolve = Callable[[Mapping[str, str]], dict[str, Resolved]]

#: How pip says that requirements and constraints exclude each other.
CLASHES = ("ResolutionImpossible", "conflicting dependencies", "No matching distribution found")


@dataclass(frozen=True)
class Closure:
    """What must be added for some wheels.

    Attributes:
        missing: the distributions that are not there, sorted by name.
        chosen: all that pip chose, by canonical name, those that are there included.
    """

    missing: list[Resolved]
    chosen: Mapping[str, Resolved]


def find_missing(
    settings: Settings,
    requests: Sequence[Request],
    known: Mapping[str, KnownPackage],
    subdir: str,
    without: Collection[str] = (),
) -> Closure:
    """Ask pip's resolver for all that some wheels need, where no version that is there changes.

    Args:
        known: the packages that there are, by canonical PyPI name.
        without: distributions that shall not be added, nor what only they need.

    Raises:
        InputError: it would take another version of a package that is there; names both.
        SourceError: nothing fits, or the registry cannot be reached.
    """
    _refuse_other_versions(requests, known)
    wanted = [_requirement(request) for request in requests]
    held = {name: package.version for name, package in known.items() if package.version}
    target = target_of(settings.recipes, subdir)

    def resolve(constraints: Mapping[str, str]) -> dict[str, Resolved]:
        with scratch(settings.sources, ".add-") as folder:
            found = pip_resolve(wanted, constraints, folder, lambda _: None, Event(), target)
        return {canonicalize_name(each.name): each for each in found}

    environment = marker_environment(target)
    try:
        chosen = resolve(held)
    except DownloadError as error:
        if any(words in error.reason for words in CLASHES):
            _explain_clash(resolve, held, environment)
        raise SourceError(f"{', '.join(wanted)}: {error.reason}") from error
    left_out = {canonicalize_name(name) for name in without}
    reached = _reachable(chosen, wanted, left_out, environment)
    missing = [chosen[name] for name in sorted(reached) if name not in known]
    return Closure(missing, chosen)


def _refuse_other_versions(requests: Sequence[Request], known: Mapping[str, KnownPackage]) -> None:
    for request in requests:
        if request.client != "pypi-wheel":
            raise InputError(
                f"{request.client}:{request.package}: only wheels say what they depend on",
                "--with-dependencies is for pypi:NAME[==VERSION]",
            )
        there = known.get(canonicalize_name(request.package))
        if there and there.version and request.version not in ("", there.version):
            raise InputError(
                f"pypi:{request.package}=={request.version}: {there.version} is locked, and "
                "--with-dependencies changes no version that is",
                f"move it with: ddlce sources update pypi:{request.package}=={request.version}",
            )


def _requirement(request: Request) -> str:
    return request.package + (f"=={request.version}" if request.version else "")


def _explain_clash(
    resolve: Resolve, held: Mapping[str, str], environment: Mapping[str, str]
) -> None:
    """Find out which locked versions stand in the way, by resolving without them.

    Raises:
        InputError: names them, and what requires others.
    """
    try:
        free = resolve({})
    except DownloadError:
        return  # they are not in the way: pip's first words say more
    lines = []
    for name, version in held.items():
        if name not in free or free[name].version == version:
            continue
        demands = [
            f"{each.name} {each.version} requires '{text}'"
            for each in free.values()
            for text in applying(each.requires, environment)
            if canonicalize_name(text.name) == name
            and not text.specifier.contains(version, prereleases=True)
        ]
        lines += [f"{demand}, and {name} {version} is locked" for demand in demands]
    if lines:
        raise InputError(
            "\n  ".join(lines),
            "name an older version that fits what is locked: pypi:NAME==VERSION; or move what is "
            "locked first: ddlce sources update",
        )


def _reachable(
    chosen: Mapping[str, Resolved],
    roots: Sequence[str],
    left_out: Collection[str],
    environment: Mapping[str, str],
) -> set[str]:
    """The canonical names that the roots need, what is left out and its needs apart."""
    reached: set[str] = set()
    seen: set[tuple[str, str]] = set()
    todo = [Requirement(root) for root in roots]
    while todo:
        requirement = todo.pop()
        name = canonicalize_name(requirement.name)
        if name in left_out or name not in chosen:
            continue
        reached.add(name)
        for extra in ("", *requirement.extras):
            if (name, extra) not in seen:
                seen.add((name, extra))
                todo += applying(chosen[name].requires, environment, extra)
    return reached
