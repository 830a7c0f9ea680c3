"""The tree's own recipes: what each is made from."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ddlce.engine.render import with_stored_sources
from ddlce.platforms import PLATFORMS
from ddlce.recipes import load_recipe, load_recipes
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


def test_a_source_of_one_platform_counts_and_is_taken_from_the_store(tmp_path: Path) -> None:
    folder = tmp_path / "leaf"
    (folder / "parts").mkdir(parents=True)
    (folder / "parts" / "one.sh").touch()
    (folder / "recipe.yaml").write_text(
        "package: {name: leaf, version: '1'}\n"
        "source:\n"
        "  - if: target_platform == 'linux-64'\n"
        "    then:\n"
        "      - {url: pypi://leaf==1/leaf.tar.gz, sha256: aa}\n"
        "      - {path: parts, target_directory: parts}\n"
        "    else:\n"
        "      - {url: pypi://leaf==2/leaf.tar.gz, sha256: bb}\n"
    )
    recipe = load_recipe(folder / "recipe.yaml")
    assert [source.get("sha256") for source in recipe.sources()] == ["aa", None, "bb"]
    assert folder / "parts" / "one.sh" in recipe.files
    copied = with_stored_sources(recipe, tmp_path / "copy", lambda digest: tmp_path / digest)
    assert [source.get("url") for source in copied.sources()] == [
        (tmp_path / "aa").as_uri(),
        None,
        (tmp_path / "bb").as_uri(),
    ]
    assert "pypi" in (folder / "recipe.yaml").read_text()


@pytest.mark.parametrize("subdir", [*PLATFORMS])
def test_what_the_machine_may_provide_is_known_for_each_platform(
    tmp_path: Path, subdir: str
) -> None:
    folder = tmp_path / "leaf"
    folder.mkdir()
    build = "build: {dynamic_linking: {missing_dso_allowlist: [libc.so.6]}}\n"
    (folder / "recipe.yaml").write_text(
        f"recipe: {{name: leaf, version: '1'}}\n{build}"
        f"outputs:\n  - package: {{name: a}}\n    {build}  - package: {{name: b}}\n"
    )
    recipe = load_recipe(folder / "recipe.yaml")
    data = with_stored_sources(recipe, tmp_path / "copy", Path, subdir).data
    for section in (data, data["outputs"][0]):
        allowed = section["build"]["dynamic_linking"]["missing_dso_allowlist"]
        assert sorted(allowed) == sorted({"libc.so.6", *PLATFORMS[subdir].machine_libraries})
    assert "dynamic_linking" not in data["outputs"][1].get("build", {})
