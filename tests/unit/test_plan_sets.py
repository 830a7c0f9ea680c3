"""Sets: packages that are planned, built and offered where they are asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddlce.errors import InputError
from ddlce.model.source import SourcesLock
from ddlce.plan import make_plan, with_all_built
from ddlce.recipes.sets import load_set_recipes, set_names, set_of
from ddlce.settings import load_settings
from ddlce.sources.locking import compare, set_sources
from support.minitree import MiniTree
from support.wheelfiles import lock_wheel, make_wheel

VARIANTS = 'python: ["3.11.* *_cpython"]\nc_stdlib_version: ["2.28"]\n'

META = """\
package: {name: ddl-ce-more, version: "1.0"}
build: {number: 0, string: "h${{ digest }}_0", noarch: generic, script: build.sh}
requirements: {run: [app, extra]}
about: {license: MIT, license_file: LICENSE, summary: A toy., homepage: "https://example.org"}
"""


@pytest.fixture
def with_set(tree: MiniTree, tmp_path: Path) -> MiniTree:
    """The small tree with a wheel, and a set of another wheel and a recipe."""
    recipes = tree.repo / "recipes"
    (recipes / "conda_build_config.yaml").write_text(VARIANTS)
    tree.recipe("python", version="3.11.1")
    tree.recipe("pip")
    (recipes / "wheels").mkdir()
    (recipes / "wheels" / "install_wheel.py").write_text("")
    (recipes / "wheels" / "wheels.yaml").write_text("wheels:\n  plain:\n")
    (recipes / "wheels" / "more.yaml").write_text("wheels:\n  extra:\n")
    folder = recipes / "sets" / "more" / "ddl-ce-more"
    folder.mkdir(parents=True)
    (folder / "recipe.yaml").write_text(META)
    metadata = ("License-Expression: MIT", "Home-page: https://x.org", "Requires-Dist: plain")
    wheels = [
        lock_wheel(make_wheel(tmp_path, "plain")),
        lock_wheel(make_wheel(tmp_path, "extra", metadata=metadata)),
    ]
    tree.lock_sources([source.model_dump(exclude_defaults=True) for source in wheels])
    return tree


def test_a_set_is_planned_where_it_is_asked_for(with_set: MiniTree) -> None:
    settings = with_set.settings
    without, plan = make_plan(settings), make_plan(settings, extra="more")
    assert {n: s.digest for n, s in plan.steps.items() if n in without.steps} == {
        n: s.digest for n, s in without.steps.items()
    }
    assert plan.steps.keys() - without.steps.keys() == {"extra", "ddl-ce-more"}
    assert plan.steps["extra"].after == {"pip", "plain", "python"}
    assert plan.steps["ddl-ce-more"].after == {"app", "extra"}


def test_a_channel_offers_a_set_once_it_is_built(with_set: MiniTree) -> None:
    settings = with_set.settings
    plan, full = make_plan(settings), make_plan(settings, extra="more")
    for name in ("extra", "ddl-ce-more"):
        assert with_all_built(settings, plan).steps.keys() == plan.steps.keys()
        for output in full.steps[name].outputs:
            package = settings.store / output.subdir / output.filename
            package.parent.mkdir(parents=True, exist_ok=True)
            package.touch()
    assert with_all_built(settings, plan).steps.keys() == full.steps.keys()
    assert with_all_built(settings, full).steps.keys() == full.steps.keys()


def test_its_sources_are_used_and_come_when_they_are_asked_for(with_set: MiniTree) -> None:
    settings = with_set.settings
    digests = {s.package: s.sha256 for s in SourcesLock.load(settings.sources_lock).sources}
    assert set_sources(settings) == {digests["extra"]}
    assert set_sources(settings, but="more") == set()
    assert not any("extra" in problem for problem in compare(settings))


def test_an_environment_has_the_set_whose_packages_it_names(with_set: MiniTree) -> None:
    settings = with_set.settings
    assert set_names(settings) == ["more"]
    assert set_of(settings, ["app", "ddl-ce-more 1.*"]) == "more"
    assert set_of(settings, ["Extra >=1"]) == "more"
    assert set_of(settings, ["app", "plain"]) == ""


def test_what_cannot_be_is_refused(with_set: MiniTree) -> None:
    settings, recipes = with_set.settings, with_set.repo / "recipes"
    with pytest.raises(InputError, match="there is no set 'none'") as caught:
        make_plan(settings, extra="none")
    assert caught.value.hint == "there are: more"
    (recipes / "wheels" / "more.yaml").write_text("wheels:\n  plain:\n")
    with pytest.raises(InputError, match=r"more\.yaml: plain: .*wheels\.yaml makes it too"):
        load_set_recipes(settings, "more")
    (recipes / "sets" / "more" / "ddl-ce-more").rename(recipes / "sets" / "more" / "extra")
    (recipes / "wheels" / "more.yaml").write_text("wheels:\n  extra:\n")
    with pytest.raises(InputError, match="'extra' has another recipe too"):
        load_set_recipes(settings, "more")


def test_the_sets_of_this_tree_have_rooms_and_environments() -> None:
    settings = load_settings()
    assert "full" in set_names(settings)
    for name in set_names(settings):
        assert set_of(settings, [f"ddl-ce-{name}"]) == name
        assert (settings.tree / "envs" / f"ddl-ce-{name}.yaml").is_file()
