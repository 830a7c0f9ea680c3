"""All recipes of the tree: hand-written, and made by tables."""

from __future__ import annotations

import functools

from ddlce.errors import InputError
from ddlce.model.recipe import Recipe
from ddlce.model.source import SourcesLock
from ddlce.platforms import BUILD_PLATFORM
from ddlce.recipes.folders import find_recipes, load_recipe
from ddlce.recipes.tables import from_debs, from_wheels
from ddlce.settings import Settings


def load_recipes(settings: Settings, subdir: str = BUILD_PLATFORM) -> dict[str, Recipe]:
    """All recipes of the tree by name: hand-written ones, then generated ones.

    Raises:
        InputError: a recipe that is not YAML, two of one name, a bad wheels manifest.
    """
    recipes: dict[str, Recipe] = {}
    for path in find_recipes(settings.recipes):
        recipe = load_recipe(path)
        if recipe.name in recipes:
            raise InputError(
                f"{path}: the recipe {recipe.name!r} exists already at {recipes[recipe.name].path}",
                "rename one of the two folders",
            )
        recipes[recipe.name] = recipe
    load_lock = functools.cache(lambda: SourcesLock.load(settings.sources_lock))
    wheels = from_wheels(settings, load_lock, subdir)
    debs = from_debs(settings, load_lock, subdir)
    for recipe in (*wheels, *debs):
        if recipe.name in recipes and not recipe.replaces:
            raise InputError(
                f"{recipe.path}: {recipe.name!r} has another recipe too, "
                f"at {recipes[recipe.name].path}",
                "delete one of the two",
            )
        recipes[recipe.name] = recipe
    return recipes
