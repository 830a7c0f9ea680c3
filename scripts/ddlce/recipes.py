"""Recipes: the rooms under recipes/, and those generated from wheels and Debian packages.

A `Recipe` is what the author wrote, parsed as YAML but not yet rendered for a variant
(stage 0 of rattler-build's model). Nothing here knows any package by name.
"""

from __future__ import annotations

import fnmatch
import functools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from packaging.version import Version

from ddlce import yamltext
from ddlce.engine.variants import glibc_floor, python_version
from ddlce.errors import InputError
from ddlce.model.source import SourcesLock
from ddlce.platforms import BUILD_PLATFORM, PLATFORMS
from ddlce.settings import Settings

if TYPE_CHECKING:
    from ddlce.nvidia import Toolkit

#: Left by editors, compilers and test runs inside a room; never part of a package.
IGNORED = {"__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", "build", ".git"}
IGNORED_SUFFIXES = (".pyc", ".egg-info", ".swp", "~")

#: The tables of packages that are made from other packagers' files, below recipes/.
WHEELS, DEBS = "wheels/wheels.yaml", "debs/debs.yaml"

#: Those of the packages that are for CUDA, where a platform has Debian's.
CUDA_DEBS = "debs/cuda*.yaml"

#: The variant key by which a recipe has a build for CUDA, in conda-forge's way.
CUDA = "cuda_compiler_version"

LoadLock = Callable[[], SourcesLock]


@dataclass(frozen=True)
class Recipe:
    """One room: a recipe as written, and the files that belong to it.

    Attributes:
        name: the room's name; unique in the tree.
        path: the recipe.yaml, or the table that a generated recipe is made from.
        folder: the folder that build scripts and patches are relative to.
        data: the parsed recipe.
        files: the files that the package is made from, beside its sources; of `tests/` only what
            the recipe's tests take along.
        generated: True where `data` was made from a wheel's or a Debian package's metadata.
        cuda: the version of CUDA that it is rendered for, "13.0"; "" as the variants say.
        versions: variant key → the version for that CUDA, where the variants say another.
    """

    name: str
    path: Path
    folder: Path
    data: dict[str, Any] = field(repr=False)
    files: tuple[Path, ...] = field(repr=False)
    generated: bool = False
    cuda: str = ""
    versions: dict[str, str] = field(default_factory=dict)

    def sources(self) -> list[dict[str, Any]]:
        """The `source` entries of the recipe and of its outputs, those of all platforms."""
        found: list[dict[str, Any]] = []
        for section in (self.data, *self.data.get("outputs", ()), *self._staging()):
            found += flatten(section.get("source"))
        return [source for source in found if isinstance(source, dict)]

    def _staging(self) -> Iterable[dict[str, Any]]:
        for output in self.data.get("outputs", ()):
            if isinstance(output.get("staging"), dict):
                yield output["staging"]


def flatten(items: object) -> Iterator[Any]:
    """The items of a list, or the one item; both branches of each `if … then … else …`."""
    for item in items if isinstance(items, list) else [] if items is None else [items]:
        if isinstance(item, dict) and "then" in item:
            yield from flatten(item["then"])
            yield from flatten(item.get("else"))
        else:
            yield item


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
    load_lock = functools.cache(lambda: SourcesLock.load(settings.sources_lock))
    wheels = _from_wheels(settings, load_lock, subdir)
    debs = _from_debs(settings, load_lock, subdir)
    for recipe, replaces in (*((wheel, False) for wheel in wheels), *debs):
        if recipe.name in recipes and not replaces:
            raise InputError(
                f"{recipe.path}: {recipe.name!r} has another recipe too, "
                f"at {recipes[recipe.name].path}",
                "delete one of the two",
            )
        recipes[recipe.name] = recipe
    return recipes


def cuda_versions(settings: Settings, subdir: str = BUILD_PLATFORM) -> list[str]:
    """The versions of CUDA that a platform has packages for, "13.0", oldest first.

    Raises:
        InputError: a table of CUDA's packages whose name says no version.
    """
    return sorted(_cuda_tables(settings, subdir), key=Version)


def cuda_variants(settings: Settings) -> list[tuple[str, str]]:
    """Every platform with each version of CUDA that it has packages for."""
    return [(subdir, cuda) for subdir in PLATFORMS for cuda in cuda_versions(settings, subdir)]


def _cuda_tables(settings: Settings, subdir: str) -> dict[str, Path]:
    """Version → the table of the packages for it: of NVIDIA's wheels, or of Debian's packages."""
    from ddlce.debs import table_platform

    tables = [*settings.recipes.glob("nvidia/*.yaml")]
    if subdir != BUILD_PLATFORM:
        tables = [*settings.recipes.glob(CUDA_DEBS)]
    found: dict[str, Path] = {}
    for path in tables:
        match = re.fullmatch(r"cuda(\d+)(\d)", path.stem)
        if not match:
            raise InputError(f"{path}: no name of a version", "call it as cuda130.yaml")
        if subdir == BUILD_PLATFORM or table_platform(path) == subdir:
            found[f"{match[1]}.{match[2]}"] = path
    return found


def load_cuda_recipes(
    settings: Settings, cuda: str, subdir: str = BUILD_PLATFORM
) -> dict[str, Recipe]:
    """The recipes of a CUDA variant by room name, as `ddl-cuda130`.

    They are the hand-written ones that use the variant key, or one that has another version for
    this CUDA, and those generated from what the platform has: NVIDIA's wheels and the wheels that
    are built for CUDA, or Debian's packages.

    Args:
        settings: the folders.
        cuda: its version, "13.0".
        subdir: the platform.

    Raises:
        InputError: as `load_recipes`; also where there is no such variant.
    """
    tables = _cuda_tables(settings, subdir)
    if cuda not in tables:
        known = sorted(tables, key=Version)
        raise InputError(
            f"there are no packages for CUDA {cuda}"
            + (f" on {subdir}" if subdir != BUILD_PLATFORM else ""),
            f"there are for {', '.join(known)}" if known else "see docs/howto/cuda-variant.md",
        )
    key, lock = f"cuda{cuda.replace('.', '')}", SourcesLock.load(settings.sources_lock)
    versions: dict[str, str] = {}
    without: set[str] = set()
    if subdir == BUILD_PLATFORM:
        from ddlce.nvidia import read_toolkit

        toolkit = read_toolkit(tables[cuda], lock, subdir)
        found = [*_from_nvidia(settings, lock, tables[cuda], toolkit)]
        versions, without = toolkit.manifest.variants, set(toolkit.manifest.without)
    else:
        from ddlce.debs import deb_recipes

        made = deb_recipes(tables[cuda], lock, subdir, {})
        found = [generated(tables[cuda], each.name, each.data, each.files) for each in made]
    found += [load_recipe(path) for path in _cuda_rooms(settings, cuda, versions, without)]
    return {
        f"{r.name}-{key}": replace(r, name=f"{r.name}-{key}", cuda=cuda, versions=versions)
        for r in found
    }


def _from_nvidia(
    settings: Settings, lock: SourcesLock, table: Path, toolkit: Toolkit
) -> Iterator[Recipe]:
    """Recipes of NVIDIA's wheels, and of those that are built for their CUDA."""
    from ddlce.nvidia import nvidia_recipes
    from ddlce.wheels import Others, wheel_packages, wheel_recipes

    subdir = BUILD_PLATFORM
    python = python_version(settings.recipes, subdir)
    glibc = glibc_floor(settings.recipes, subdir)
    made = [(table, each) for each in nvidia_recipes(toolkit, subdir, python, glibc)]
    wheels = settings.recipes / "wheels" / table.name
    if wheels.exists():
        packages = {**wheel_packages(settings.recipes / WHEELS, lock), **toolkit.packages}
        others = Others(packages, toolkit.libraries)
        made += [
            (wheels, each) for each in wheel_recipes(wheels, lock, subdir, python, glibc, others)
        ]
    for path, each in made:
        yield generated(path, each.name, each.data, each.files)


def _cuda_rooms(
    settings: Settings, cuda: str, versions: Mapping[str, str], without: set[str]
) -> list[Path]:
    """The rooms that have a build for a CUDA, if their `skip` does not say otherwise."""
    rooms = _find_rooms(settings.recipes)
    unknown = without - {path.parent.name for path in rooms}
    if unknown:
        raise InputError(
            f"CUDA {cuda}: 'without' names {', '.join(sorted(unknown))}, which is no room",
            "mend the name, or take the line out",
        )
    keys = "|".join(map(re.escape, versions))
    uses = re.compile(rf"{CUDA}|\$\{{\{{[^}}]*\b({keys})\b" if keys else CUDA)
    return [
        path
        for path in rooms
        if path.parent.name not in without and uses.search(path.read_text(encoding="utf-8"))
    ]


def _from_wheels(settings: Settings, lock: LoadLock, subdir: str) -> Iterator[Recipe]:
    manifest = settings.recipes / WHEELS
    if manifest.exists():
        from ddlce.wheels import wheel_recipes

        python = python_version(settings.recipes, subdir)
        glibc = glibc_floor(settings.recipes, subdir)
        for wheel in wheel_recipes(manifest, lock(), subdir, python, glibc):
            yield generated(manifest, wheel.name, wheel.data, wheel.files)


def _from_debs(settings: Settings, lock: LoadLock, subdir: str) -> Iterator[tuple[Recipe, bool]]:
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
    recipe = Recipe(folder.name, path, folder, data, ())
    local = [str(source["path"]) for source in recipe.sources() if source.get("path")]
    taken = [*_packaged_tests(data), *local]
    # Tests for developers make no package: another word in one must not rebuild what stands on it.
    files = [
        file
        for file in _walk(folder)
        if not file.is_relative_to(folder / "tests")
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
    """Whether a file of the room is what an entry names, or lies in the folder that it names."""
    glob = re.sub(r"\$\{\{.*?\}\}", "*", words).removeprefix("./").rstrip("/")
    return fnmatch.fnmatchcase(name, glob) or fnmatch.fnmatchcase(name, f"{glob}/*")


def room_files(recipe: Recipe) -> list[Path]:
    """All files of a room, the developers' tests too, and of its local sources."""
    return [*dict.fromkeys([*_walk(recipe.folder), *recipe.files])]


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
