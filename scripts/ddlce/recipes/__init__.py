"""The recipes below recipes/: hand-written, and those made by tables of others' packages.

Nothing here knows any package by name.
"""

from ddlce.recipes.cuda import cuda_variants, cuda_versions, load_cuda_recipes
from ddlce.recipes.folders import load_recipe, recipe_files
from ddlce.recipes.load import load_recipes
from ddlce.recipes.tables import WHEELS

__all__ = [
    "WHEELS",
    "cuda_variants",
    "cuda_versions",
    "load_cuda_recipes",
    "load_recipe",
    "load_recipes",
    "recipe_files",
]
