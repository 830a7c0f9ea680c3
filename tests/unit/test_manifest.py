"""Manifests: what is read, and how the mistakes in one are told."""

from __future__ import annotations

from pathlib import Path

import pytest

import ddlce.model.manifest as module
from ddlce.errors import InputError
from ddlce.model.manifest import Manifest, load_manifest, manifest_schema

REPO = Path(__file__).parents[2]
GOOD = """\
# a comment
name: toy
release: "2026.11"
summary: A toy.
platforms:
  linux-64:
    glibc: "2.28"
  linux-ppc64le:
    glibc: "2.28"
    specs: [essl]
specs:
  - numpy >=2
"""


def read(folder: Path, text: str) -> Manifest:
    path = folder / "toy.yaml"
    path.write_text(text)
    return load_manifest(path)


def message(folder: Path, text: str) -> tuple[str, str | None]:
    with pytest.raises(InputError) as caught:
        read(folder, text)
    return caught.value.message.replace(f"{folder}/", ""), caught.value.hint


def test_reads_defaults_and_platform_specs(tmp_path: Path) -> None:
    manifest = read(tmp_path, GOOD)
    assert manifest.channels == ["ddl-ce"]
    assert manifest.specs_for("linux-64") == ["numpy >=2"]
    assert manifest.specs_for("linux-ppc64le") == ["numpy >=2", "essl"]


def test_digest_is_of_the_meaning(tmp_path: Path) -> None:
    manifest = read(tmp_path, GOOD)
    reordered = GOOD.replace("# a comment\n", "").replace("[essl]", "\n      - essl")
    assert read(tmp_path, reordered).digest == manifest.digest
    assert read(tmp_path, GOOD.replace(">=2", ">=3")).digest != manifest.digest


@pytest.mark.parametrize(
    ("old", "new", "expected", "hint"),
    [
        (
            '"2026.11"',
            "2026.11",
            "toy.yaml:3: field 'release': Input should be a valid string, not 2026.11",
            'put the value in quotes: "2026.11"',
        ),
        (
            '    glibc: "2.28"\n  linux-ppc64le:',
            "    glibc: 2.28\n  linux-ppc64le:",
            "toy.yaml:7: field 'platforms.linux-64.glibc': Input should be a valid string, "
            "not 2.28",
            'put the value in quotes: "2.28"',
        ),
        (
            "summary: A toy.",
            "sumary: A toy.",
            "toy.yaml:2: field 'summary': Field required\n"
            "toy.yaml:4: field 'sumary': Extra inputs are not permitted, not 'A toy.'",
            "the fields are: name, release, summary, channels, platforms, specs, variables",
        ),
        (
            "linux-64:",
            "win-64:",
            "toy.yaml:6: field 'platforms.win-64': String should match pattern "
            "'^linux-[a-z0-9]+$', not 'win-64'",
            "the fields are described in scripts/ddlce/model/manifest.py",
        ),
        (
            "specs:\n  - numpy >=2\n",
            "specs: []\n",
            "toy.yaml:11: field 'specs': List should have at least 1 item after validation, "
            "not 0, not []",
            "the fields are described in scripts/ddlce/model/manifest.py",
        ),
        (
            "name: toy",
            "name: tox",
            "toy.yaml:2: field 'name': 'tox' is not the file's name 'toy'",
            "rename the file or the environment",
        ),
        (
            "name: toy",
            "name: [toy",
            "toy.yaml:3: not valid YAML: did not find expected ',' or ']'",
            "correct the file",
        ),
    ],
)
def test_mistakes_name_line_field_and_value(
    tmp_path: Path, old: str, new: str, expected: str, hint: str
) -> None:
    assert old in GOOD
    assert message(tmp_path, GOOD.replace(old, new)) == (expected, hint)


def test_empty_file_and_missing_file(tmp_path: Path) -> None:
    assert "toy.yaml:1: field 'name': Field required" in message(tmp_path, "")[0]
    with pytest.raises(InputError, match="there is no environment manifest") as caught:
        load_manifest(tmp_path / "other.yaml")
    assert caught.value.hint == "choose one of: toy"


def test_the_release_is_the_trees(tmp_path: Path) -> None:
    """One line of the tree says it for all manifests, and for the metapackages."""
    envs, recipes = tmp_path / "envs", tmp_path / "recipes"
    envs.mkdir()
    recipes.mkdir()
    without = GOOD.replace('release: "2026.11"\n', "")
    text, hint = message(envs, without)
    assert text.startswith("toy.yaml: there is no field 'release', and ")
    assert hint == 'write there, in quotes: ddl_ce_release: ["2026.11"]'
    variants = recipes / "conda_build_config.yaml"
    for wrong in ("2026.11", '["2026.11", "2027.03"]', "[2026.11]", '["soon"]'):
        variants.write_text(f"ddl_ce_release: {wrong}\n")
        assert message(envs, without)[0] == text
    variants.write_text('ddl_ce_release: ["2027.03"]\n')
    assert read(envs, without).release == "2027.03"
    assert read(envs, GOOD).release == "2026.11"  # a manifest of a site's own
    same = read(envs, without.replace("name", 'release: "2027.03"\nname'))
    assert same.digest == read(envs, without).digest


def test_one_line_names_the_release_of_this_tree() -> None:
    manifests = (REPO / "envs").glob("*.yaml")
    recipes = REPO.glob("recipes/**/ddl-ce*/recipe.yaml")
    (release,) = {load_manifest(path).release for path in (REPO / "envs").glob("*.yaml")}
    named = [path for path in (*manifests, *recipes) if release in path.read_text()]
    assert named == []


def test_schema_is_checked_in() -> None:
    path = Path(module.__file__).with_name("manifest.schema.json")
    assert path.read_text() == manifest_schema(), (
        "write it again: python -c 'from ddlce.model.manifest import *; "
        f'open("{path}", "w").write(manifest_schema())\''
    )


@pytest.mark.parametrize("path", sorted((REPO / "envs").glob("*.yaml")), ids=lambda p: p.stem)
def test_the_manifests_of_this_tree_are_valid(path: Path) -> None:
    assert load_manifest(path).name == path.stem
