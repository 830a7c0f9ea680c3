"""Sets: packages beside those that every build makes, for an environment of their own.

A set `NAME` is a table of wheels, `recipes/wheels/NAME.yaml`, and the recipes in
`recipes/sets/NAME`. Nothing else stands on it, so what is built without it keeps its digests.
A table that says `cuda: "N.N"` has packages which stand on those for that CUDA; one that says
`set: NAME` has packages which stand on that set's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from packaging.utils import canonicalize_name

from ddlce.engine.variants import target_of
from ddlce.errors import InputError
from ddlce.model.recipe import Recipe
from ddlce.model.source import SourcesLock
from ddlce.platforms import BUILD_PLATFORM
from ddlce.recipes.cuda import what_cuda_has
from ddlce.recipes.folders import load_recipe
from ddlce.recipes.tables import WHEELS
from ddlce.settings import Settings
from ddlce.wheels import Others, wheel_packages, wheel_recipes
from ddlce.wheels.depends import KnownPackage
from ddlce.wheels.manifest import WheelsManifest

#: The folder of the sets' recipes, below recipes/.
SETS = "sets"


def set_names(settings: Settings) -> list[str]:
    """The sets of the tree, sorted."""
    return sorted(path.name for path in (settings.recipes / SETS).glob("*/") if path.is_dir())


def recipes_of_sets(settings: Settings) -> set[str]:
    """The names of the recipes in all sets' folders."""
    return {path.parent.name for path in (settings.recipes / SETS).glob("*/*/recipe.yaml")}


def set_table(settings: Settings, name: str) -> Path:
    """The set's table of wheels, which may not be there.

    Raises:
        InputError: there is no such set.
    """
    known = set_names(settings)
    if name not in known:
        raise InputError(
            f"there is no set {name!r} of packages",
            f"there are: {', '.join(known)}"
            if known
            else f"a set is a folder below {settings.recipes / SETS}",
        )
    return settings.recipes / "wheels" / f"{name}.yaml"


def set_cuda(settings: Settings, name: str) -> str:
    """The CUDA whose packages a set stands on, "13.0"; "" where they are those for CPUs.

    Raises:
        InputError: no such set, or a wrong table.
    """
    table = set_table(settings, name)
    return WheelsManifest.load(table).cuda if table.is_file() else ""


def sets_below(settings: Settings, name: str) -> list[str]:
    """The sets that a set stands on, the lowest first, and itself.

    Raises:
        InputError: no such set, a wrong table, or sets that stand on each other.
    """
    found = [name] if name else []
    while name:
        table = set_table(settings, name)
        name = WheelsManifest.load(table).set if table.is_file() else ""
        if name in found:
            raise InputError(
                f"{table}: set: {name}: the sets {', '.join(found)} stand on each other",
                "take the line out of one of their tables",
            )
        found[:0] = [name] if name else []
    return found


def known_wheels(settings: Settings, name: str = "") -> dict[str, KnownPackage]:
    """The packages made from wheels, by canonical PyPI name: of a set, those below it too.

    Args:
        name: the set; "" for none.

    Raises:
        InputError: no such set, or a wrong table.
    """
    lock = (
        SourcesLock.load(settings.sources_lock)
        if settings.sources_lock.is_file()
        else SourcesLock()
    )
    names = sets_below(settings, name)
    found: dict[str, KnownPackage] = {}
    for cuda in filter(None, (set_cuda(settings, each) for each in names)):
        found |= what_cuda_has(settings, cuda, lock)[0].packages
    for table in _tables(settings, names):
        found |= wheel_packages(table, lock)
    return found


def _tables(settings: Settings, names: Iterable[str]) -> list[Path]:
    """Those tables of wheels that there are: every build's, and of some sets."""
    tables = [settings.recipes / WHEELS, *(set_table(settings, name) for name in names)]
    return [table for table in tables if table.is_file()]


def fixed_versions(settings: Settings) -> dict[str, dict[str, str]]:
    """Wheels of which tables take one version, by canonical PyPI name: table → version.

    Raises:
        InputError: a wrong table.
    """
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for path in (settings.recipes / WHEELS, *(set_table(settings, n) for n in set_names(settings))):
        if path.is_file():
            for name, entry in WheelsManifest.load(path).wheels.items():
                if entry.version:
                    found[canonicalize_name(entry.pypi or name)][path.name] = entry.version
    return found


def load_set_recipes(
    settings: Settings, name: str, subdir: str = BUILD_PLATFORM
) -> dict[str, Recipe]:
    """The recipes of a set by name: those in its folder, then those of its table.

    Raises:
        InputError: no such set, a recipe that is none, a package that is there already.
    """
    paths = sorted((settings.recipes / SETS / name).glob("*/recipe.yaml"))
    found = {recipe.name: recipe for recipe in map(load_recipe, paths)}
    for recipe in _from_table(settings, name, subdir):
        if recipe.name in found:
            raise InputError(
                f"{recipe.path}: {recipe.name!r} has another recipe too, "
                f"at {found[recipe.name].path}",
                "delete one of the two",
            )
        found[recipe.name] = recipe
    if not (cuda := set_cuda(settings, name)):
        return found
    _, toolkit = what_cuda_has(settings, cuda, SourcesLock.load(settings.sources_lock))
    versions = toolkit.manifest.variants
    return {n: replace(recipe, cuda=cuda, versions=versions) for n, recipe in found.items()}


def _from_table(settings: Settings, name: str, subdir: str) -> list[Recipe]:
    """The recipes that the set's table makes."""
    table = set_table(settings, name)
    if not table.is_file():
        return []
    lock = SourcesLock.load(settings.sources_lock)
    *below, _ = sets_below(settings, name)
    others = Others(known_wheels(settings, below[-1] if below else ""))
    if cuda := set_cuda(settings, name):
        for_cuda, _ = what_cuda_has(settings, cuda, lock)
        others = replace(for_cuda, packages={**others.packages, **for_cuda.packages})
    twice = sorted(wheel_packages(table, lock).keys() & others.packages.keys())
    if twice:
        makers = [t for t in _tables(settings, below) if twice[0] in wheel_packages(t, lock)]
        raise InputError(
            f"{table}: {twice[0]}: {makers[0] if makers else f'CUDA {cuda}'} makes it too",
            "take it out of one of the two",
        )
    return wheel_recipes(table, lock, target_of(settings.recipes, subdir), others)


def set_of(settings: Settings, specs: Iterable[str]) -> str:
    """The set that has a package which these match specs name; "" where none does.

    Of several, it is the one that stands on most others.

    Args:
        specs: an environment's.
    """
    wanted = {canonicalize_name(spec.split()[0]) for spec in specs}
    found = [
        name
        for name in set_names(settings)
        if wanted & {canonicalize_name(recipe) for recipe in load_set_recipes(settings, name)}
    ]
    return max(found, key=lambda name: len(sets_below(settings, name)), default="")
