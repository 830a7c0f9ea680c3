"""Keeping sources.lock: adding, renewing and dropping entries, and comparing them with recipes."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from ddlce.errors import DdlceError, InputError
from ddlce.locks import locked
from ddlce.model.recipe import Recipe
from ddlce.model.source import Source, SourcesLock
from ddlce.platforms import BUILD_PLATFORM, PLATFORMS
from ddlce.recipes import cuda_variants, load_cuda_recipes, load_recipes
from ddlce.recipes.sets import load_set_recipes, set_names, sets_below
from ddlce.settings import SOURCES_LOCK, Settings
from ddlce.sources.resolve import Request, Resolver, merged, request_for

LOCK = f".{SOURCES_LOCK}.lock"


def load_lock(settings: Settings) -> SourcesLock:
    """The tree's sources.lock; an empty one where there is none."""
    path = settings.sources_lock
    return SourcesLock.load(path) if path.exists() else SourcesLock()


@contextlib.contextmanager
def changing(settings: Settings) -> Iterator[None]:
    """Hold the lock of sources.lock and of the tables whose lines follow it.

    It is in the tree, as they are: whoever changes them meets it, whatever their cache.
    """
    with locked(settings.tree / LOCK):
        yield


def lock_sources(
    settings: Settings,
    request: Request,
    subdir: str,
    *,
    files: str = "*",
    url: str | None = None,
    sha256: str | None = None,
    keep_versions: bool = False,
    suite: str = "",
    area: str = "",
) -> list[Source]:
    """Resolve a request and put its files into sources.lock; returns their entries.

    The lock file's lock is held only while its content changes: two `add` at once both count.

    Raises:
        SourceError, InputError: as `Resolver.resolve`.
    """
    entries = Resolver(settings, subdir, suite=suite, area=area).resolve(
        request, files=files, url=url, sha256=sha256
    )
    with changing(settings):
        merged(load_lock(settings), entries, keep_versions).dump(settings.sources_lock)
    return entries


def compare(settings: Settings) -> list[str]:
    """What recipes use and the lock lacks, or the reverse; a sentence each."""
    lock, used = load_lock(settings), used_sources(settings)
    known = {source.sha256 for source in lock.sources}
    problems = [
        f"{where}: {url} (sha256 {digest}) is not locked"
        for digest, (url, where) in used.items()
        if digest not in known
    ]
    return problems + [
        f"{SOURCES_LOCK}: {source.spec} ({source.file}) is used by no recipe"
        for source in lock.sources
        if source.sha256 not in used
    ]


def lock_missing(settings: Settings) -> Iterator[Source]:
    """Lock the sources that recipes use and the lock lacks, one after the other.

    Raises:
        DdlceError: as `lock_sources`; the message names the recipe.
    """
    known = {source.sha256 for source in load_lock(settings).sources}
    for digest, (url, where) in used_sources(settings).items():
        if digest in known:
            continue
        try:
            request, file = request_for(url)
            yield from lock_sources(
                settings, request, BUILD_PLATFORM, files=file, sha256=digest, keep_versions=True
            )
        except DdlceError as error:
            error.message = f"{where}: {error.message}"
            raise


def drop_unused(settings: Settings) -> list[Source]:
    """Take the sources out of the lock that no recipe uses; returns them."""
    used = used_sources(settings)
    with changing(settings):
        sources = load_lock(settings).sources
        unused = [source for source in sources if source.sha256 not in used]
        if unused:
            kept = [source for source in sources if source.sha256 in used]
            SourcesLock(sources=kept).dump(settings.sources_lock)
    return unused


def used_sources(settings: Settings) -> dict[str, tuple[str, Path]]:
    """sha256 → url and user of every source that a recipe of any platform, or a tool, downloads.

    Raises:
        InputError: a source without a sha256.
    """
    sources = load_lock(settings).sources
    used = {s.sha256: (s.recipe_url, settings.sources_lock) for s in sources if s.is_glibc}
    recipes = [r for subdir in PLATFORMS for r in load_recipes(settings, subdir).values()]
    for subdir, cuda in cuda_variants(settings):
        recipes += load_cuda_recipes(settings, cuda, subdir).values()
    for name in set_names(settings):
        recipes += load_set_recipes(settings, name).values()
    for recipe in recipes:
        for source in recipe.sources():
            if "url" not in source:
                continue
            digest = str(source.get("sha256", ""))
            if len(digest) != 64:
                raise InputError(
                    f"{recipe.path}: {source['url']} has no sha256 of 64 hex digits",
                    "give the one that upstream publishes, or that of a file that you trust",
                )
            used[digest] = (_rendered(str(source["url"]), recipe), recipe.path)
    return used


def _rendered(url: str, recipe: Recipe) -> str:
    """A source's address with the values of the recipe's own `context`."""
    context = recipe.data.get("context") or {}
    return re.sub(r"\$\{\{\s*(\w+)\s*\}\}", lambda found: str(context.get(found[1], found[0])), url)


def cuda_sources(settings: Settings, but: str = "") -> set[str]:
    """The sha256 of every source that packages for CUDA alone are made from.

    Args:
        but: a version of CUDA whose sources are left out.

    Raises:
        InputError: as `load_cuda_recipes`.
    """
    variants = cuda_variants(settings)
    if but and but not in (cuda for _, cuda in variants):
        load_cuda_recipes(settings, but)  # says which there are
    if not variants:
        return set()
    found = [(c, _digests(load_cuda_recipes(settings, c, subdir))) for subdir, c in variants]
    wanted = [digests for cuda, digests in found if cuda == but]
    others = [_digests(load_recipes(settings, subdir)) for subdir in PLATFORMS]
    return set().union(*(digests for _, digests in found)).difference(*others, *wanted)


def set_sources(settings: Settings, but: str = "") -> set[str]:
    """The sha256 of every source that packages of sets alone are made from.

    Args:
        but: a set whose sources are left out, with those of the sets that it stands on.

    Raises:
        InputError: no such set.
    """
    names = set_names(settings)
    if not names and not but:
        return set()
    below = sets_below(settings, but)
    wanted = set().union(*(_digests(load_set_recipes(settings, name)) for name in below))
    found = [_digests(load_set_recipes(settings, name)) for name in names]
    others = [_digests(load_recipes(settings, subdir)) for subdir in PLATFORMS]
    return set().union(*found).difference(*others, wanted)


def _digests(recipes: Mapping[str, Recipe]) -> set[str]:
    """The sha256 of every source of some recipes."""
    return {str(source.get("sha256")) for r in recipes.values() for source in r.sources()}


def same_files(old: list[Source]) -> str:
    """The pattern that fits a Debian source's locked files, as far as their names show it."""
    files = [source.file for source in old if source.client == "debian-source"]
    return "*.orig*" if files and all(".orig" in file for file in files) else "*"
