"""The tree's own recipes: what each is made from."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ddlce.recipes import load_recipes
from ddlce.settings import load_settings

REPO = Path(__file__).parents[2]


def tracked(path: Path) -> set[Path]:
    """The files that git knows at or below `path`."""
    names = subprocess.check_output(
        ["git", "-c", "safe.directory=*", "-C", REPO, "ls-files", "-z", "--", path], text=True
    )
    return {REPO / name for name in names.split("\0") if name}


@pytest.mark.skipif(not (REPO / ".git").exists(), reason="needs git's list of files")
def test_every_tracked_file_of_a_local_source_counts() -> None:
    """A file outside the digest could change without a new build of the package."""
    seen = 0
    for recipe in load_recipes(load_settings()).values():
        for source in recipe.sources():
            if "path" in source:
                place = (recipe.folder / source["path"]).resolve()
                assert not tracked(place) - {*recipe.files}, recipe.name
                seen += 1
    assert seen > 10
