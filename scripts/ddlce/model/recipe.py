"""A recipe as its author wrote it: parsed as YAML, not yet rendered for a variant."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: The variant key by which a recipe has a build for CUDA, in conda-forge's way.
CUDA = "cuda_compiler_version"


@dataclass(frozen=True)
class Recipe:
    """A recipe as written, and the files that belong to it.

    Attributes:
        name: its folder's; unique in the tree.
        path: the recipe.yaml, or the table that a generated recipe is made from.
        folder: the folder that build scripts and patches are relative to.
        data: the parsed recipe.
        files: the files that the package is made from, beside its sources; of `tests/` only what
            the recipe's tests take along. `recipes/folders.py` chooses them, and has IGNORED.
        generated: True where `data` was made from a wheel's or a Debian package's metadata.
        cuda: the version of CUDA that it is rendered for, "13.0"; "" as the variants say.
        versions: variant key → the version for that CUDA, where the variants say another.
        replaces: whether a generated recipe takes the place of a hand-written one of its name.
    """

    name: str
    path: Path
    folder: Path
    data: dict[str, Any] = field(repr=False)
    files: tuple[Path, ...] = field(repr=False)
    generated: bool = False
    cuda: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    replaces: bool = False

    @classmethod
    def of_table(
        cls,
        table: Path,
        name: str,
        data: dict[str, Any],
        files: Iterable[Path],
        *,
        replaces: bool = False,
    ) -> Recipe:
        """The recipe of a package that a table makes; `data` are as in a recipe.yaml."""
        files = tuple(files)
        return cls(name, table, table.parent, data, files, generated=True, replaces=replaces)

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
