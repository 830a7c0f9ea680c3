"""Recipes that tables make: of wheels, and of Debian's packages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

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
        for wheel in wheel_recipes(manifest, lock(), target):
            yield generated(manifest, wheel.name, wheel.data, wheel.files)


def from_debs(settings: Settings, lock: LoadLock, subdir: str) -> Iterator[tuple[Recipe, bool]]:
    """Recipes, and whether each takes the place of a hand-written one."""
    manifest = settings.recipes / DEBS
    if manifest.exists():
        from ddlce.debs import deb_recipes
        from ddlce.wheels import wheel_packages

        wheels = wheel_packages(settings.recipes / WHEELS, lock())
        for deb in deb_recipes(manifest, lock(), subdir, wheels):
            yield generated(manifest, deb.name, deb.data, deb.files), deb.instead_of_recipe


def generated(manifest: Path, name: str, data: dict[str, Any], files: tuple[Path, ...]) -> Recipe:
    """The recipe of a package that a table makes.

    Args:
        manifest: the table.
        name: the package.
        data: the recipe, with the same keys as a recipe.yaml.
        files: the files that it depends on.
    """
    return Recipe(name, manifest, manifest.parent, data, files, generated=True)
