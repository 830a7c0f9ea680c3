"""Recipes that tables make: of wheels, and of Debian's packages."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ddlce.engine.variants import target_of
from ddlce.model.recipe import Recipe
from ddlce.model.source import SourcesLock
from ddlce.settings import Settings

#: The tables of packages that are made from other packagers' files, below recipes/.
WHEELS, DEBS = "wheels/wheels.yaml", "debs/debs.yaml"

LoadLock = Callable[[], SourcesLock]


def from_wheels(settings: Settings, lock: LoadLock, subdir: str) -> Iterator[Recipe]:
    """The recipes of the table of wheels."""
    manifest = settings.recipes / WHEELS
    if manifest.exists():
        from ddlce.wheels import wheel_recipes

        target = target_of(settings.recipes, subdir)
        yield from wheel_recipes(manifest, lock(), target)


def from_debs(settings: Settings, lock: LoadLock, subdir: str) -> Iterator[Recipe]:
    """The recipes of the table of Debian's packages."""
    manifest = settings.recipes / DEBS
    if manifest.exists():
        from ddlce.debs import deb_recipes
        from ddlce.wheels import wheel_packages

        wheels = wheel_packages(settings.recipes / WHEELS, lock())
        yield from deb_recipes(manifest, lock(), subdir, wheels)
