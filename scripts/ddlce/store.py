"""The store of built packages: one folder for all digests, shared by all builds of a user.

A package is published by one rename, after its record; its presence under its name means that
it was built, tested and checked from the inputs that its digest names.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from ddlce.files import write_atomic


class BuildRecord(BaseModel):
    """What is remembered of the last build of a recipe.

    Attributes:
        recipe: the recipe's name.
        digest: 64 hex digits.
        parts: what the digest was made from.
        packages: paths below the store, e.g. "linux-64/ddl-1.0-h0123456789_0.conda".
        seconds: wall time of the build, in seconds.
        built: when, UTC.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    recipe: str
    digest: str
    parts: dict[str, str]
    packages: list[str]
    seconds: float
    built: datetime


class Store:
    """Built packages and the records of their builds."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def package(self, subdir: str, filename: str) -> Path:
        """Where a package of this name is or would be."""
        return self.folder / subdir / filename

    def has(self, subdir: str, filename: str) -> bool:
        """Whether the package was built."""
        return self.package(subdir, filename).is_file()

    def lock_file(self, digest: str) -> Path:
        """The file to lock while building this digest, so that two builders share the work."""
        return self.folder / "locks" / digest

    def last_build(self, recipe: str) -> BuildRecord | None:
        """The record of the recipe's newest build, or None."""
        try:
            return BuildRecord.model_validate_json(self._record_path(recipe).read_text())
        except (FileNotFoundError, ValidationError):
            return None

    def remember(
        self, recipe: str, digest: str, parts: dict[str, str], packages: list[str], seconds: float
    ) -> None:
        """Write the record of a build."""
        record = BuildRecord(
            recipe=recipe,
            digest=digest,
            parts=parts,
            packages=packages,
            seconds=round(seconds, 1),
            built=datetime.now(UTC),
        )
        write_atomic(self._record_path(recipe), record.model_dump_json(indent=1) + "\n")

    def _record_path(self, recipe: str) -> Path:
        return self.folder / "records" / f"{recipe}.json"
