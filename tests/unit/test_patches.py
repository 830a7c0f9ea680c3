"""A patch on a source of this tree is refreshed with that source: no build of `make` may see it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.run import run

RECIPES = Path(__file__).parents[2] / "recipes"


def patched_folders(recipes: Path) -> Iterator[tuple[Path, Path]]:
    """The folders and files of the tree that a recipe patches, each with one of the patches."""
    for recipe in sorted(recipes.rglob("recipe.yaml")):
        sources = yaml.safe_load(recipe.read_text()).get("source", [])
        for source in [sources] if isinstance(sources, Mapping) else sources:
            yield from patches_on(recipe.parent, source)


def patches_on(folder: Path, source: Mapping[str, Any]) -> Iterator[tuple[Path, Path]]:
    for patch in source.get("patches", []) if "path" in source else []:
        yield (folder / source["path"]).resolve(), folder / patch


PATCHED = list(patched_folders(RECIPES))


def test_some_recipe_patches_a_folder_of_the_tree() -> None:
    assert len(PATCHED) >= 2


@pytest.mark.parametrize(
    ("source", "patch"), [pytest.param(*pair, id=pair[1].name) for pair in PATCHED]
)
def test_a_patch_applies_to_the_source_as_it_is(source: Path, patch: Path, tmp_path: Path) -> None:
    copy = tmp_path / "source"
    if source.is_dir():
        shutil.copytree(source, copy)
    else:
        copy.mkdir()
        shutil.copy(source, copy)
    done = run(
        ["git", "apply", "--check", patch],
        cwd=copy,
        env={"GIT_CEILING_DIRECTORIES": str(tmp_path), "PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == 0, f"{source} has changed: refresh {patch}\n{done.stderr}"
