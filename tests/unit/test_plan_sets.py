"""Sets: packages that are planned, built and offered where they are asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ddlce.errors import InputError
from ddlce.model.recipe import Recipe
from ddlce.model.source import SourcesLock
from ddlce.plan import make_plan, with_all_built
from ddlce.recipes.sets import known_wheels, load_set_recipes, set_names, set_of
from ddlce.settings import Settings, load_settings
from ddlce.sources.locking import compare, set_sources
from support.minitree import MiniTree
from support.nvidiafiles import CUDA_VERSION, toolkit_wheel
from support.wheelfiles import VARIANTS, lock_wheel, make_wheel

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


def add_second_set(tree: MiniTree, tmp_path: Path, head: str) -> None:
    """A set `most` of one wheel, which needs one of the set `more`."""
    (tree.repo / "recipes" / "sets" / "most").mkdir()
    (tree.repo / "recipes" / "wheels" / "most.yaml").write_text(f"{head}wheels:\n  beyond:\n")
    metadata = ("License-Expression: MIT", "Home-page: https://x.org", "Requires-Dist: extra")
    wheel = lock_wheel(make_wheel(tmp_path, "beyond", metadata=metadata))
    locked = SourcesLock.load(tree.settings.sources_lock).sources
    tree.lock_sources([s.model_dump(exclude_defaults=True) for s in (*locked, wheel)])


def test_a_set_stands_on_another(with_set: MiniTree, tmp_path: Path) -> None:
    settings = with_set.settings
    more = make_plan(settings, extra="more")
    add_second_set(with_set, tmp_path, "set: more\n")
    plan = make_plan(settings, extra="most")
    assert plan.steps["beyond"].after == {"extra", "pip", "python"}
    assert plan.steps.keys() - more.steps.keys() == {"beyond"}
    assert {n: plan.steps[n].digest for n in more.steps} == {
        n: s.digest for n, s in more.steps.items()
    }
    assert known_wheels(settings, "most").keys() == {"beyond", "extra", "plain"}
    assert set_of(settings, ["extra", "beyond"]) == "most"
    assert set_sources(settings, but="most") == set()
    digests = {s.package: s.sha256 for s in SourcesLock.load(settings.sources_lock).sources}
    assert set_sources(settings, but="more") == {digests["beyond"]}


def test_a_set_below_others_is_planned_once(
    with_set: MiniTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_second_set(with_set, tmp_path, "set: more\n")
    plan, planned = make_plan(with_set.settings), list[str]()

    def noted(settings: Settings, name: str) -> dict[str, Recipe]:
        planned.append(name)
        return load_set_recipes(settings, name)

    monkeypatch.setattr("ddlce.plan.beside.load_set_recipes", noted)
    with_all_built(with_set.settings, plan)
    assert planned == ["more", "most"]


def test_sets_that_stand_on_each_other_are_refused(with_set: MiniTree, tmp_path: Path) -> None:
    add_second_set(with_set, tmp_path, "set: more\n")
    (with_set.repo / "recipes" / "wheels" / "more.yaml").write_text(
        "set: most\nwheels: {extra: }\n"
    )
    with pytest.raises(
        InputError, match=r"more\.yaml: set: most: .* more, most stand on each other"
    ):
        make_plan(with_set.settings, extra="most")


def test_a_set_on_one_that_is_not_there_is_refused(with_set: MiniTree, tmp_path: Path) -> None:
    add_second_set(with_set, tmp_path, "set: none\n")
    with pytest.raises(InputError, match="there is no set 'none'"):
        make_plan(with_set.settings, extra="most")


@pytest.fixture
def for_cuda(with_set: MiniTree, tmp_path: Path) -> MiniTree:
    """The same, where the set is for CUDA 13.0, and its wheel needs one of NVIDIA's."""
    recipes = with_set.repo / "recipes"
    (recipes / "nvidia").mkdir()
    (recipes / "nvidia" / "install_nvidia.py").write_text("")
    entry = {"pypi": "nvidia-demo", "part": "runtime"}
    table = {"cuda": "13.0", "license": "LicenseRef-EULA", "packages": {"libdemo": entry}}
    (recipes / "nvidia" / "cuda130.yaml").write_text(yaml.safe_dump(table))
    (recipes / "conda_build_config.yaml").write_text("cuda_compiler_version: [None]\n" + VARIANTS)
    version = recipes / "cuda" / "cuda-version"
    version.mkdir(parents=True)
    (version / "recipe.yaml").write_text(CUDA_VERSION)
    (recipes / "wheels" / "more.yaml").write_text('cuda: "13.0"\nwheels:\n  extra:\n')
    needs = ("Requires-Dist: plain", "Requires-Dist: nvidia-demo")
    metadata = ("License-Expression: MIT", "Home-page: https://x.org", *needs)
    wheels = [
        lock_wheel(make_wheel(tmp_path, "plain")),
        lock_wheel(make_wheel(tmp_path, "extra", metadata=metadata)),
        lock_wheel(toolkit_wheel(tmp_path), package="nvidia-demo"),
    ]
    with_set.lock_sources([source.model_dump(exclude_defaults=True) for source in wheels])
    return with_set


def test_a_set_for_cuda_stands_on_the_packages_of_that_cuda(for_cuda: MiniTree) -> None:
    settings = for_cuda.settings
    plan, whole = make_plan(settings, extra="more"), make_plan(settings, cuda="13.0", extra="more")
    assert plan.steps["extra"].after == {"libdemo-cuda130", "pip", "plain", "python"}
    assert plan.steps["extra"].recipe.cuda == "13.0"
    assert {n: s.digest for n, s in whole.steps.items()} == {
        n: s.digest for n, s in plan.steps.items()
    }
    without = make_plan(settings, cuda="13.0")
    assert plan.steps.keys() - without.steps.keys() == {"extra", "ddl-ce-more"}
    assert known_wheels(settings, "more").keys() == {"extra", "nvidia-demo", "plain"}


def test_a_set_for_cuda_stands_on_one_for_cpus(for_cuda: MiniTree, tmp_path: Path) -> None:
    settings, wheels = for_cuda.settings, for_cuda.repo / "recipes" / "wheels"
    needs = ("Requires-Dist: extra", "Requires-Dist: nvidia-demo")
    locked = SourcesLock.load(settings.sources_lock).sources
    metadata = ("License-Expression: MIT", "Home-page: https://x.org", *needs)
    alone = ("License-Expression: MIT", "Home-page: https://x.org", "Requires-Dist: plain")
    (tmp_path / "other").mkdir()
    files = [
        *(source for source in locked if source.package != "extra"),
        lock_wheel(make_wheel(tmp_path / "other", "extra", metadata=alone)),
        lock_wheel(make_wheel(tmp_path, "beyond", metadata=metadata)),
    ]
    for_cuda.lock_sources([source.model_dump(exclude_defaults=True) for source in files])
    (wheels / "more.yaml").write_text("wheels:\n  extra:\n")
    (wheels / "most.yaml").write_text('cuda: "13.0"\nset: more\nwheels:\n  beyond:\n')
    (for_cuda.repo / "recipes" / "sets" / "most").mkdir()
    plan = make_plan(settings, extra="most")
    assert plan.steps["beyond"].after == {"extra", "libdemo-cuda130", "pip", "python"}
    assert (plan.steps["beyond"].recipe.cuda, plan.steps["extra"].recipe.cuda) == ("13.0", "")
    assert plan.steps["extra"].digest == make_plan(settings, extra="more").steps["extra"].digest


def test_a_set_for_a_cuda_that_is_not_there_is_refused(for_cuda: MiniTree) -> None:
    table = for_cuda.repo / "recipes" / "wheels" / "more.yaml"
    table.write_text('cuda: "12.0"\nwheels:\n  extra:\n')
    with pytest.raises(InputError, match=r"there are no packages for CUDA 12\.0") as caught:
        make_plan(for_cuda.settings, extra="more")
    assert caught.value.hint == "there are for 13.0"


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
