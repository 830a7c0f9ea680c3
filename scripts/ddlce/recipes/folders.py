"""Hand-written recipes: the folders below recipes/ with a recipe.yaml."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterator
from pathlib import Path

from ddlce.errors import InputError
from ddlce.model.document import load_yaml
from ddlce.model.recipe import Recipe, flatten

#: Left by editors, compilers and test runs in a recipe's folder; never part of a package.
IGNORED = {"__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", "build", ".git"}
IGNORED_SUFFIXES = (".pyc", ".egg-info", ".swp", "~")


def load_recipe(path: Path) -> Recipe:
    """Read one hand-written recipe.

    Raises:
        InputError: not readable, not YAML, or not a mapping; names file and line.
    """
    data = load_yaml(path)
    if not isinstance(data, dict):
        raise InputError(f"{path}: a recipe is a mapping", "see docs/packager-guide.md")
    folder = path.parent
    recipe = Recipe(folder.name, path, folder, data, ())
    local = [str(source["path"]) for source in recipe.sources() if source.get("path")]
    taken = [*_packaged_tests(data), *local]
    # Tests for developers, and a page on the recipe, make no package: another word in one must not
    # rebuild what stands on it.
    files = [
        file
        for file in _walk(folder)
        if not (file.is_relative_to(folder / "tests") or file == folder / "README.md")
        or any(_is_taken(str(file.relative_to(folder)), words) for words in taken)
    ]
    for name in local:
        if not (folder / name).resolve().is_relative_to(folder):
            files += _walk((folder / name).resolve())
    return Recipe(folder.name, path, folder, data, tuple(files))


def _packaged_tests(data: object) -> Iterator[str]:
    """What the recipe's tests take along, as written: files, folders, globs; whatever the `if`."""
    if isinstance(data, dict):
        files = data.get("files")
        if isinstance(files, dict):
            yield from map(str, flatten(files.get("recipe")))
        data = [*data.values()]
    if isinstance(data, list):
        for part in data:
            yield from _packaged_tests(part)


def _is_taken(name: str, words: str) -> bool:
    """Whether a file of the folder is what an entry names, or lies in the folder that it names."""
    glob = re.sub(r"\$\{\{.*?\}\}", "*", words).removeprefix("./").rstrip("/")
    return fnmatch.fnmatchcase(name, glob) or fnmatch.fnmatchcase(name, f"{glob}/*")


def recipe_files(recipe: Recipe) -> list[Path]:
    """All files of a recipe, the developers' tests too, and of its local sources."""
    return [*dict.fromkeys([*_walk(recipe.folder), *recipe.files])]


def find_recipes(top: Path) -> list[Path]:
    """The recipe.yaml of each hand-written recipe that no set has, sorted.

    Raises:
        InputError: there is none.
    """
    found = [*top.glob("*/recipe.yaml"), *top.glob("*/*/recipe.yaml")]
    if not found:
        raise InputError(f"{top}: no recipe.yaml found", "is this a DDL-CE source tree?")
    return sorted(found)


def _walk(folder: Path) -> list[Path]:
    """The files below `folder` in a stable order, without what tools leave behind."""
    if folder.is_file():
        return [folder]
    if not folder.is_dir():
        raise InputError(f"{folder}: named as a source `path`, but it does not exist")
    found: list[Path] = []
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(n for n in folders if not is_ignored(n))
        found += [Path(parent) / n for n in sorted(names) if not is_ignored(n)]
    return found


def is_ignored(name: str) -> bool:
    """Whether a file or folder of this name is left by tools and belongs to no package."""
    return name in IGNORED or name.endswith(IGNORED_SUFFIXES)
