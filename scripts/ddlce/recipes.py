"""Recipes: the rooms under recipes/, and those generated from wheels.

A `Recipe` is what the author wrote, parsed as YAML but not yet rendered for a variant
(stage 0 of rattler-build's model). Nothing here knows any package by name.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from ddlce import yamltext
from ddlce.errors import InputError
from ddlce.model.source import SourcesLock
from ddlce.settings import BUILD_PLATFORM, Settings

#: Left by editors, compilers and test runs inside a room; never part of a package.
IGNORED = {"__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", "build", ".git"}
IGNORED_SUFFIXES = (".pyc", ".egg-info", ".swp", "~")

VARIANTS = "conda_build_config.yaml"


@dataclass(frozen=True)
class Recipe:
    """One room: a recipe as written, and the files that belong to it.

    Attributes:
        name: the room's name; unique in the tree.
        path: the recipe.yaml, or the wheels manifest for a generated recipe.
        folder: the folder that build scripts and patches are relative to.
        data: the parsed recipe.
        files: the files that the package is made from, beside its sources.
        generated: True where `data` was made from a wheel's metadata.
    """

    name: str
    path: Path
    folder: Path
    data: dict[str, Any] = field(repr=False)
    files: tuple[Path, ...] = field(repr=False)
    generated: bool = False

    def sources(self) -> list[dict[str, Any]]:
        """The `source` entries of the recipe and of its outputs."""
        found: list[dict[str, Any]] = []
        for section in (self.data, *self.data.get("outputs", ()), *self._staging()):
            entry = section.get("source") or []
            found += [entry] if isinstance(entry, dict) else entry
        return [source for source in found if isinstance(source, dict)]

    def _staging(self) -> Iterable[dict[str, Any]]:
        for output in self.data.get("outputs", ()):
            if isinstance(output.get("staging"), dict):
                yield output["staging"]


def load_recipes(settings: Settings, subdir: str = BUILD_PLATFORM) -> dict[str, Recipe]:
    """All recipes of the tree by room name: hand-written rooms, then generated ones.

    Raises:
        InputError: a recipe that is not YAML, a duplicate room, a bad wheels manifest.
    """
    recipes: dict[str, Recipe] = {}
    for path in _find_rooms(settings.recipes):
        recipe = load_recipe(path)
        if recipe.name in recipes:
            raise InputError(
                f"{path}: the room {recipe.name!r} exists already at {recipes[recipe.name].path}",
                "rename one of the two folders",
            )
        recipes[recipe.name] = recipe
    manifest = settings.recipes / "wheels" / "wheels.yaml"
    if manifest.exists():
        from ddlce.wheels import wheel_recipes

        lock = SourcesLock.load(settings.tree / "sources.lock")
        for wheel in wheel_recipes(manifest, lock, subdir):
            if wheel.name in recipes:
                raise InputError(
                    f"{manifest}: {wheel.name!r} has a hand-written recipe too, "
                    f"at {recipes[wheel.name].path}",
                    "delete one of the two",
                )
            recipes[wheel.name] = Recipe(
                name=wheel.name,
                path=manifest,
                folder=manifest.parent,
                data=wheel.data,
                files=tuple(wheel.files),
                generated=True,
            )
    return recipes


def load_recipe(path: Path) -> Recipe:
    """Read one hand-written recipe.

    Raises:
        InputError: not readable, not YAML, or not a mapping; names file and line.
    """
    try:
        data = yamltext.load(path.read_text())
    except yaml.YAMLError as error:
        raise InputError(f"{path}: not valid YAML: {error}", "mend the line named above") from error
    except OSError as error:
        raise InputError(f"{path}: {os.strerror(error.errno or 0)}") from error
    if not isinstance(data, dict):
        raise InputError(f"{path}: a recipe is a mapping", "see docs/packager-guide.md")
    folder = path.parent
    files = [*_walk(folder)]
    recipe = Recipe(folder.name, path, folder, data, ())
    for source in recipe.sources():
        local = source.get("path")
        if local and not (folder / local).resolve().is_relative_to(folder):
            files += _walk((folder / local).resolve())
    return Recipe(folder.name, path, folder, data, tuple(files))


def _find_rooms(top: Path) -> list[Path]:
    rooms = [*top.glob("*/recipe.yaml"), *top.glob("*/*/recipe.yaml")]
    if not rooms:
        raise InputError(f"{top}: no recipe.yaml found", "is this a DDL-CE source tree?")
    return sorted(rooms)


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
