"""`recipes/debs/debs.yaml`: the packages made from Debian's binary packages."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from ddlce.repackaged import Table, TableEntry


class DebEntry(TableEntry):
    """One package. All that is not said here comes from the Debian packages' own metadata.

    Attributes:
        debs: the Debian packages that it is made of; by default the one of its own name. The
            first gives version, summary and homepage.
        license: SPDX expression; Debian's metadata has none that a program can read.
        license_from: Debian packages whose licence text serves, where its own have a link only.
        version: where Debian's is not upstream's.
        without: soname → its symbols (globs); the library is not loaded, and what is left of it
            in the files resolves to nothing.
        move: folder as in the Debian package → folder in the prefix, both with a slash at the end.
        patches: in recipes/debs/, applied in the prefix's site-packages.
        instead_of_recipe: takes the place of the hand-written recipe on this platform.
        unmodified: the files stay as they are, as their licence demands; for libraries alone.
    """

    CORRECTIONS = (*TableEntry.CORRECTIONS, "patches", "version", "without", "instead_of_recipe")
    CORRECTS = "changes what Debian made"

    debs: list[str] = Field(default_factory=list)
    license: str
    license_from: list[str] = Field(default_factory=list)
    version: str = ""
    without: dict[str, list[str]] = Field(default_factory=dict)
    move: dict[str, str] = Field(default_factory=dict)
    patches: list[str] = Field(default_factory=list)
    instead_of_recipe: bool = False
    unmodified: bool = False

    @model_validator(mode="after")
    def _left_alone(self) -> Self:
        if self.unmodified and (self.without or self.patches):
            raise ValueError("'unmodified' goes with neither 'without' nor 'patches'")
        return self


class DebsManifest(Table):
    """The manifest: debs.yaml, and cudaNNN.yaml for the packages of a CUDA.

    Attributes:
        subdir: the platform that the packages are for.
        python: its Python, "3.13".
        compiler: Debian packages of a Python of the same minor version for the build platform,
            with what it needs to run: it compiles the bytecode.
        debs: conda name → entry.
    """

    KIND = "debs"
    GUIDE = "Debian packages"

    subdir: str
    python: str
    compiler: list[str]
    debs: dict[str, DebEntry]


def table_platform(path: Path) -> str:
    """The platform that a table's packages are for.

    Raises:
        InputError: as `Table.load`.
    """
    return DebsManifest.load(path).subdir
