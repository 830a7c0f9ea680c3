"""The recipes of a CUDA variant: recipes that have a build for it, and what packagers have."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.version import Version

from ddlce.engine.variants import target_of
from ddlce.errors import InputError
from ddlce.model.recipe import CUDA, Recipe
from ddlce.model.source import SourcesLock
from ddlce.platforms import BUILD_PLATFORM, PLATFORMS
from ddlce.recipes.folders import find_recipes, load_recipe
from ddlce.recipes.tables import WHEELS
from ddlce.settings import Settings

if TYPE_CHECKING:
    from ddlce.nvidia import Toolkit
    from ddlce.wheels import Others

#: Those of the packages that are for CUDA, where a platform has Debian's.
CUDA_DEBS = "debs/cuda*.yaml"


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
    """The recipes of a CUDA variant by name, as `ddl-cuda130`.

    They are the hand-written ones that use the variant key, or one that has another version for
    this CUDA, and those generated from what the platform has: NVIDIA's wheels and the wheels that
    are built for CUDA, or Debian's packages.

    Args:
        cuda: its version, "13.0".

    Raises:
        InputError: as `load_recipes`; also where there is no such variant.
    """
    table = _cuda_table(settings, cuda, subdir)
    key, lock = f"cuda{cuda.replace('.', '')}", SourcesLock.load(settings.sources_lock)
    versions: dict[str, str] = {}
    without: set[str] = set()
    if subdir == BUILD_PLATFORM:
        from ddlce.nvidia import read_toolkit

        toolkit = read_toolkit(table, lock, subdir)
        recipes = _from_nvidia(settings, lock, table, toolkit)
        versions, without = toolkit.manifest.variants, set(toolkit.manifest.without)
    else:
        from ddlce.debs import deb_recipes

        recipes = deb_recipes(table, lock, subdir, {})
    recipes += [load_recipe(path) for path in _cuda_paths(settings, cuda, versions, without)]
    return {
        f"{r.name}-{key}": replace(r, name=f"{r.name}-{key}", cuda=cuda, versions=versions)
        for r in recipes
    }


def what_cuda_has(settings: Settings, cuda: str, lock: SourcesLock) -> tuple[Others, Toolkit]:
    """What a set's table finds in a CUDA variant of the build platform, and its toolkit.

    Raises:
        InputError: there is no such variant, or a wrong table.
    """
    from ddlce.nvidia import read_toolkit

    table = _cuda_table(settings, cuda, BUILD_PLATFORM)
    toolkit = read_toolkit(table, lock, BUILD_PLATFORM)
    return _others(settings, lock, table, toolkit), toolkit


def _cuda_table(settings: Settings, cuda: str, subdir: str) -> Path:
    tables = _cuda_tables(settings, subdir)
    if cuda not in tables:
        known = sorted(tables, key=Version)
        raise InputError(
            f"there are no packages for CUDA {cuda}"
            + (f" on {subdir}" if subdir != BUILD_PLATFORM else ""),
            f"there are for {', '.join(known)}" if known else "see docs/howto/cuda-variant.md",
        )
    return tables[cuda]


def _others(settings: Settings, lock: SourcesLock, table: Path, toolkit: Toolkit) -> Others:
    """The packages of wheels: those for CPUs, NVIDIA's, and those that are built for CUDA."""
    from ddlce.wheels import Others, wheel_packages

    packages = {**wheel_packages(settings.recipes / WHEELS, lock), **toolkit.packages}
    wheels = settings.recipes / "wheels" / table.name
    if wheels.exists():
        packages |= wheel_packages(wheels, lock)
    return Others(packages, toolkit.libraries)


def _from_nvidia(
    settings: Settings, lock: SourcesLock, table: Path, toolkit: Toolkit
) -> list[Recipe]:
    """Recipes of NVIDIA's wheels, and of those that are built for their CUDA."""
    from ddlce.nvidia import nvidia_recipes
    from ddlce.wheels import wheel_recipes

    target = target_of(settings.recipes)
    recipes = nvidia_recipes(toolkit, target)
    wheels = settings.recipes / "wheels" / table.name
    if wheels.exists():
        recipes += wheel_recipes(wheels, lock, target, _others(settings, lock, table, toolkit))
    return recipes


def _cuda_paths(
    settings: Settings, cuda: str, versions: Mapping[str, str], without: set[str]
) -> list[Path]:
    """The recipes that have a build for a CUDA, if their `skip` does not say otherwise."""
    paths = find_recipes(settings.recipes)
    unknown = without - {path.parent.name for path in paths}
    if unknown:
        raise InputError(
            f"CUDA {cuda}: 'without' names {', '.join(sorted(unknown))}, which is no recipe",
            "mend the name, or take the line out",
        )
    keys = "|".join(map(re.escape, versions))
    uses = re.compile(rf"{CUDA}|\$\{{\{{[^}}]*\b({keys})\b" if keys else CUDA)
    return [
        path
        for path in paths
        if path.parent.name not in without and uses.search(path.read_text(encoding="utf-8"))
    ]
