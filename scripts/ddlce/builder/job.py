"""A build job: what the scheduler hands to a worker process, and what comes back."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from ddlce.model.recipe import Recipe

Phase = Literal["prepare", "build", "pack", "check", "test", "publish", "done"]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Job(_Strict):
    """Everything that a worker needs to build one recipe.

    Attributes:
        recipe: as it was planned.
        subdir: target platform.
        digest: 64 hex digits; `short` goes into the build strings.
        parts: what the digest was made from; goes into the package's metadata.
        variants: conda_build_config.yaml.
        sources: sha256 → stored file.
        below: packages that the build and its tests may use, as (subdir, path).
        staging: the job's own folder; removed when it succeeds.
        store: the store's folder.
        log: the log file.
    """

    recipe: Recipe
    subdir: str
    digest: str
    short: str
    parts: dict[str, str]
    variants: Path
    sources: dict[str, Path]
    below: list[tuple[str, Path]]
    staging: Path
    store: Path
    log: Path


class Event(_Strict):
    """One line from a worker: where it is, or how it failed.

    Attributes:
        phase: what it does now; "done" at the end.
        package: the output it works on.
        error: set when the job failed in this phase.
        packages: with "done", what was published, as paths below the store.
    """

    phase: Phase
    package: str = ""
    error: str = ""
    packages: list[str] = []
