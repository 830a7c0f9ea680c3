"""The plan of a CUDA variant: what is built for CUDA, and on what."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ddlce.errors import InputError
from ddlce.model.source import SourcesLock
from ddlce.plan import make_plan, with_all_built
from ddlce.plan.beside import make_cuda_plan
from ddlce.recipes import cuda_versions, load_cuda_recipes
from ddlce.settings import load_settings
from ddlce.sources.locking import cuda_sources
from support.minitree import MiniTree
from support.nvidiafiles import CUDA_VERSION, VARIANTS, toolkit_wheel
from support.wheelfiles import lock_wheel

USES_CUDA = """\
package: {name: app, version: "1.0"}
build:
  number: 0
  string: ${{ cuda_compiler_version | replace(".", "") }}_h${{ digest }}_0
  noarch: generic
  script: build.sh
requirements:
  host:
    - base
    - if: cuda_compiler_version != "None"
      then: libdemo-dev
about: {license: MIT, license_file: LICENSE, summary: A toy., homepage: "https://example.org"}
"""

PACKAGES = {
    "libdemo": {"pypi": "nvidia-demo", "part": "runtime"},
    "libdemo-dev": {"pypi": "nvidia-demo", "part": "development", "exports": "libdemo"},
}


@pytest.fixture
def cuda_tree(tree: MiniTree, tmp_path: Path) -> MiniTree:
    """The small tree, with one wheel of NVIDIA's and an app that has a build for CUDA."""
    recipes = tree.repo / "recipes"
    (recipes / "conda_build_config.yaml").write_text(VARIANTS)
    (recipes / "app" / "recipe.yaml").write_text(USES_CUDA)
    folder = recipes / "cuda" / "cuda-version"
    folder.mkdir(parents=True)
    (folder / "recipe.yaml").write_text(CUDA_VERSION)
    (recipes / "nvidia").mkdir()
    (recipes / "nvidia" / "install_nvidia.py").write_text("")
    table = {"cuda": "13.0", "license": "LicenseRef-EULA", "packages": PACKAGES}
    (recipes / "nvidia" / "cuda130.yaml").write_text(yaml.safe_dump(table))
    source = lock_wheel(toolkit_wheel(tmp_path), package="nvidia-demo")
    tree.lock_sources([source.model_dump(exclude_defaults=True)])
    return tree


def test_packages_for_cuda_are_beside_the_others(cuda_tree: MiniTree) -> None:
    without, plan = make_plan(cuda_tree.settings), make_plan(cuda_tree.settings, cuda="13.0")
    assert {n: s.digest for n, s in plan.steps.items() if n in without.steps} == {
        n: s.digest for n, s in without.steps.items()
    }
    added = plan.steps.keys() - without.steps.keys()
    assert added == {
        *("app-cuda130", "cuda-version-cuda130", "libdemo-cuda130", "libdemo-dev-cuda130"),
    }
    assert "cuda-version" not in without.steps  # for CUDA alone
    assert plan.steps["app"].after == {"base"}
    assert plan.steps["app-cuda130"].after == {"base", "libdemo-dev-cuda130", "libdemo-cuda130"}
    builds = [plan.steps[n].outputs[0].build for n in ("app", "app-cuda130")]
    assert [build.split("_")[0] for build in builds] == ["None", "130"]


def test_what_is_for_cuda_changes_with_its_wheel(cuda_tree: MiniTree) -> None:
    before = make_plan(cuda_tree.settings, cuda="13.0")
    (cuda_tree.repo / "recipes" / "nvidia" / "install_nvidia.py").write_text("# changed\n")
    after = make_plan(cuda_tree.settings, cuda="13.0")
    changed = {n for n, s in after.steps.items() if s.digest != before.steps[n].digest}
    assert changed == {"app-cuda130", "libdemo-cuda130", "libdemo-dev-cuda130"}


def test_a_channel_offers_them_once_they_are_built(cuda_tree: MiniTree) -> None:
    settings = cuda_tree.settings
    plan, full = make_plan(settings), make_plan(settings, cuda="13.0")
    assert with_all_built(settings, plan).steps.keys() == plan.steps.keys()
    for name in full.steps.keys() - plan.steps.keys():
        for output in full.steps[name].outputs:
            package = settings.store / output.subdir / output.filename
            package.parent.mkdir(parents=True, exist_ok=True)
            package.touch()
    assert with_all_built(settings, plan).steps.keys() == full.steps.keys()


def test_variants_do_not_stand_on_each_other(cuda_tree: MiniTree) -> None:
    """A second one, which lacks a package of the first."""
    settings = cuda_tree.settings
    table = {"cuda": "12.8", "license": "LicenseRef-EULA", "packages": PACKAGES}
    (cuda_tree.repo / "recipes" / "nvidia" / "cuda128.yaml").write_text(yaml.safe_dump(table))
    alone = make_plan(settings, cuda="12.8")
    first = make_plan(settings, cuda="13.0")
    beside = make_cuda_plan(settings, "12.8", first)
    assert {n: s.digest for n, s in beside.steps.items()} == {
        n: s.digest for n, s in alone.steps.items()
    }
    assert not any("cuda130" in name for s in beside.steps.values() for name in s.after)
    # What is planned already is not planned again, nor is a variant that is not built.
    assert with_all_built(settings, first).steps.keys() == first.steps.keys()


NEEDS_TOY = """\
package: {name: follower, version: "1.0"}
build:
  number: 0
  string: h${{ digest }}_0
  noarch: generic
  script: "true"
requirements:
  run: ["base ${{ toy }}"]
about: {license: MIT, license_file: LICENSE, summary: A toy., homepage: "https://example.org"}
"""


def test_a_variant_may_have_other_versions(cuda_tree: MiniTree) -> None:
    """What uses one of them is built for it, too; a recipe may be left out."""
    settings, recipes = cuda_tree.settings, cuda_tree.repo / "recipes"
    (recipes / "conda_build_config.yaml").write_text(VARIANTS + 'toy: ["2.*"]\n')
    folder = recipes / "follower"
    folder.mkdir()
    (folder / "recipe.yaml").write_text(NEEDS_TOY)
    before = make_plan(settings, cuda="13.0")
    assert "follower-cuda130" not in before.steps
    table = {"cuda": "12.8", "license": "LicenseRef-EULA", "packages": PACKAGES}
    more = {"variants": {"toy": "1.*"}, "without": {"app": "there is none."}}
    path = recipes / "nvidia" / "cuda128.yaml"
    path.write_text(yaml.safe_dump({**table, **more}))
    plan = make_plan(settings, cuda="12.8")
    assert plan.steps["follower"].digest == before.steps["follower"].digest
    (output,) = plan.steps["follower-cuda128"].outputs
    assert output.variant["toy"] == "1.*"
    assert output.rendered["requirements"]["run"] == ["base 1.*"]
    assert "app-cuda128" not in plan.steps
    after = make_plan(settings, cuda="13.0")
    assert {n: s.digest for n, s in after.steps.items()} == {
        n: s.digest for n, s in before.steps.items()
    }
    path.write_text(yaml.safe_dump({**table, "without": {"nothing": "a slip."}}))
    with pytest.raises(InputError, match="'without' names nothing, which is no recipe"):
        make_plan(settings, cuda="12.8")


def test_their_sources_are_fetched_when_asked_for(cuda_tree: MiniTree) -> None:
    (source,) = SourcesLock.load(cuda_tree.settings.sources_lock).sources
    assert cuda_sources(cuda_tree.settings) == {source.sha256}
    assert cuda_sources(cuda_tree.settings, but="13.0") == set()
    with pytest.raises(InputError, match=r"there are no packages for CUDA 12\.0"):
        cuda_sources(cuda_tree.settings, but="12.0")


def test_a_version_without_packages_is_refused(cuda_tree: MiniTree) -> None:
    with pytest.raises(InputError, match=r"there are no packages for CUDA 11\.8") as caught:
        make_plan(cuda_tree.settings, cuda="11.8")
    assert caught.value.hint == "there are for 13.0"
    with pytest.raises(InputError, match=r"no packages for CUDA 13\.0 on linux-ppc64le"):
        make_plan(cuda_tree.settings, "linux-ppc64le", "13.0")
    (cuda_tree.repo / "recipes" / "nvidia" / "thirteen.yaml").touch()
    with pytest.raises(InputError, match=r"thirteen\.yaml: no name of a version"):
        cuda_versions(cuda_tree.settings)


@pytest.mark.parametrize("cuda", cuda_versions(load_settings()))
def test_each_package_for_cuda_is_for_one_cuda(cuda: str) -> None:
    """Those of the project: none can be mixed with another CUDA's, or solved without a driver."""
    recipes = load_cuda_recipes(load_settings(), cuda)
    for name, recipe in recipes.items():
        run = recipe.data.get("requirements", {}).get("run", [])
        if recipe.generated and "nvidia" in recipe.path.parts:
            assert f"cuda-version {cuda}.*" in run, name
            assert recipe.data["build"]["dynamic_linking"]["binary_relocation"] is False
    pytorch = recipes[f"pytorch-cuda{cuda.replace('.', '')}"].data
    assert "__cuda" in pytorch["requirements"]["run"]
    assert pytorch["build"]["variant"] == {"down_prioritize_variant": 1}
