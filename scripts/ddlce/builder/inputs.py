"""The sources of recipes: which are needed, and where their bytes are."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ddlce.errors import InputError
from ddlce.model.recipe import Recipe
from ddlce.model.source import Source, SourcesLock
from ddlce.settings import Settings
from ddlce.sources.store import SourceStore


def locked_sources(settings: Settings, recipes: Iterable[Recipe]) -> dict[str, Source]:
    """sha256 → locked source, for every `source` with a `url` in the recipes.

    Raises:
        InputError: a source without sha256, or one that sources.lock does not name.
    """
    lock = SourcesLock.load(settings.sources_lock)
    sources: dict[str, Source] = {}
    for recipe in recipes:
        for entry in recipe.sources():
            if "url" not in entry:
                continue
            digest = str(entry.get("sha256", ""))
            try:
                sources[digest] = lock.by_sha256(digest)
            except KeyError:
                raise InputError(
                    f"{recipe.path}: the source {entry['url']} with sha256 {digest or '(none)'} "
                    "is not in sources.lock",
                    "lock it with: ddlce sources add (docs/packager-guide.md)",
                ) from None
    return sources


def source_paths(settings: Settings, recipe: Recipe) -> dict[str, Path]:
    """sha256 → the stored file of each of a recipe's sources."""
    store = SourceStore(settings.sources)
    return {d: store.path(s) for d, s in locked_sources(settings, [recipe]).items()}
