"""Rattler's judgement of single texts, for `ddlce lint`: None where there is nothing wrong."""

from __future__ import annotations

from pathlib import Path

from rattler import MatchSpec, Version
from rattler.exceptions import InvalidMatchSpecError, InvalidVersionError
from rattler_build import RattlerBuildError, Stage0Recipe

from ddlce.engine.render import plain


def recipe_problem(path: Path) -> str | None:
    """Why rattler-build does not accept the recipe at `path` as written (stage 0)."""
    try:
        Stage0Recipe.from_file(path)
    except (RattlerBuildError, ValueError) as error:
        return plain(str(error))
    return None


def version_problem(version: str) -> str | None:
    """Why `version` is no version for conda."""
    try:
        Version(version)
    except InvalidVersionError as error:
        return str(error)
    return None


def spec_problem(spec: str) -> str | None:
    """Why `spec` is no match spec."""
    try:
        MatchSpec(spec)
    except InvalidMatchSpecError as error:
        return str(error)
    return None
