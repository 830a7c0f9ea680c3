"""The plan of a CUDA variant for POWER: made of Debian's packages, beside that platform's own."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ddlce.errors import InputError
from ddlce.plan import Plan, make_plan, with_all_built
from ddlce.plan.cross_cuda import make_cross_cuda_plan
from ddlce.recipes import cuda_variants, cuda_versions, load_cuda_recipes
from ddlce.settings import load_settings
from ddlce.sources.locking import cuda_sources, used_sources
from support.minitree import MiniTree
from support.nvidiafiles import CUDA_VERSION, VARIANTS, toolkit_wheel
from support.wheelfiles import lock_wheel

POWER = "linux-ppc64le"
VERSION = "12.4"

#: A library with a build for CUDA, and a noarch package for CUDA alone.
APP = """\
package: {name: app, version: "1.0"}
build:
  number: 0
  string: ${{ cuda_compiler_version | replace(".", "") }}_h${{ digest }}_0
  script: build.sh
requirements:
  build: [base]
  host:
    - lib
    - if: cuda_compiler_version != "None"
      then: libdemo
about: {license: MIT, license_file: LICENSE, summary: A toy., homepage: "https://example.org"}
"""
#: Needs what there is not for POWER.
GPU = CUDA_VERSION.replace("cuda-version", "gpu").replace("  noarch: generic\n", "")

LIBDEMO = {
    "client": "debian-binary",
    "package": "libdemo1",
    "version": "12.4.1~x-2",
    "file": "libdemo1.deb",
    "size": 1,
    "sha256": "d" * 64,
    "subdir": POWER,
    "suite": "trixie",
    "pool": "pool/non-free/d/demo/libdemo1.deb",
    "deb": {"summary": "A toy.", "homepage": "https://example.org", "sonames": ["libdemo.so.1"]},
}
TABLE = {
    "subdir": POWER,
    "python": "3.13",
    "compiler": [],
    "debs": {
        "libdemo": {
            "debs": ["libdemo1"],
            "license": "MIT",
            "version": "12.4.1",
            "unmodified": True,
            "add": ["cuda-version 12.4.*"],
            "run_exports": "libdemo >=12",
            "why": "for a test.",
        }
    },
}


@pytest.fixture
def power(tree: MiniTree) -> MiniTree:
    """The small tree, with `app` on `lib`, both compiled, and a table of Debian's for CUDA 12.4."""
    recipes = tree.repo / "recipes"
    (recipes / "conda_build_config.yaml").write_text(VARIANTS)
    tree.recipe("lib")
    lib = recipes / "lib" / "recipe.yaml"
    lib.write_text(lib.read_text().replace("noarch: generic, ", ""))
    (recipes / "app" / "recipe.yaml").write_text(APP)
    for name, text in {"cuda-version": CUDA_VERSION, "gpu": GPU}.items():
        (recipes / "cuda" / name).mkdir(parents=True)
        (recipes / "cuda" / name / "recipe.yaml").write_text(text)
    (recipes / "debs").mkdir()
    for name in ("install_deb.py", "relocate.py", "install_unmodified.py"):
        (recipes / "debs" / name).write_text("")
    (recipes / "debs" / "cuda124.yaml").write_text(yaml.safe_dump(TABLE))
    (recipes / "absent.yaml").write_text(f"{POWER}-cuda124: {{gpu: there is no such GPU}}\n")
    tree.lock_sources([LIBDEMO])
    return tree


def digests(plan: Plan) -> dict[str, str]:
    return {name: step.digest for name, step in plan.steps.items()}


def test_packages_for_cuda_are_beside_the_platforms_own(power: MiniTree) -> None:
    native, without = make_plan(power.settings), make_plan(power.settings, POWER)
    plan = make_plan(power.settings, POWER, VERSION)
    assert {n: d for n, d in digests(plan).items() if n in without.steps} == digests(without)
    assert plan.steps.keys() - without.steps.keys() == {
        *("app-cuda124", "cuda-version-cuda124", "libdemo-cuda124"),
    }
    assert not native.steps.keys() & {"cuda-version", "gpu", "libdemo"}
    assert plan.steps["cuda-version-cuda124"].subdir == "linux-64"  # noarch
    assert plan.steps["app-cuda124"].subdir == POWER
    builds = [plan.steps[n].outputs[0].build for n in ("app", "app-cuda124")]
    assert [build.split("_")[0] for build in builds] == ["None", "124"]


def test_a_build_stands_on_the_platforms_packages_and_on_those_for_cuda(power: MiniTree) -> None:
    plan = make_plan(power.settings, POWER, VERSION)
    assert plan.sandbox("app-cuda124") == [
        *("base", "lib", "cuda-version-cuda124", "libdemo-cuda124"),
    ]
    assert plan.sandbox("app") == ["base", "lib"]
    order = [*plan.steps]
    assert order.index("cuda-version-cuda124") < order.index("libdemo-cuda124")
    assert order.index("libdemo-cuda124") < order.index("app-cuda124")


def user(power: MiniTree, old: str, new: str) -> None:
    """A further recipe with a build for CUDA, as `app`."""
    folder = power.repo / "recipes" / "user"
    folder.mkdir()
    text = APP.replace("name: app", "name: user").replace("build.sh", "true")
    (folder / "recipe.yaml").write_text(text.replace(old, new))


def test_a_build_for_cuda_stands_on_others_builds_for_it(power: MiniTree) -> None:
    user(power, "- lib", "- app")
    plan = make_plan(power.settings, POWER, VERSION)
    assert "app-cuda124" in plan.sandbox("user-cuda124")
    assert "app" not in plan.sandbox("user-cuda124")
    assert "app" in plan.sandbox("user")
    assert "depends on app-cuda124" in plan.steps["user-cuda124"].parts


def test_tools_are_not_those_of_a_variant(power: MiniTree, tmp_path: Path) -> None:
    """Of a native plan with another CUDA, the packages without it alone count."""
    user(power, "[base]", "[app]")
    (power.repo / "recipes" / "nvidia").mkdir()
    (power.repo / "recipes" / "nvidia" / "install_nvidia.py").write_text("")
    packages = {"libdemo": {"pypi": "nvidia-demo", "part": "runtime"}}
    table = {"cuda": "13.0", "license": "LicenseRef-EULA", "packages": packages}
    (power.repo / "recipes" / "nvidia" / "cuda130.yaml").write_text(yaml.safe_dump(table))
    wheel = lock_wheel(toolkit_wheel(tmp_path), package="nvidia-demo")
    power.lock_sources([LIBDEMO, wheel.model_dump(exclude_defaults=True)])
    native = make_plan(power.settings, cuda="13.0")
    assert "app-cuda130" in native.steps
    beside = make_cross_cuda_plan(power.settings, POWER, VERSION, native)
    assert digests(beside) == digests(make_plan(power.settings, POWER, VERSION))
    assert "app@linux-64" in beside.steps["user-cuda124"].after


def test_what_is_for_cuda_changes_with_its_table_and_nothing_else_does(power: MiniTree) -> None:
    before = {v: make_plan(power.settings, POWER, v) for v in ("", VERSION)}
    power.lock_sources([LIBDEMO | {"sha256": "e" * 64}])
    changed = {
        name
        for v, old in before.items()
        for name, digest in digests(make_plan(power.settings, POWER, v)).items()
        if digest != old.steps[name].digest
    }
    assert changed == {"app-cuda124", "libdemo-cuda124"}


def test_what_there_is_not_is_absent_with_its_reason(power: MiniTree) -> None:
    plan = make_plan(power.settings, POWER, VERSION)
    assert plan.absent == {"gpu-cuda124": "there is no such GPU"}
    assert make_plan(power.settings, POWER).absent == {}  # the platform without CUDA lacks nothing
    folder = power.repo / "recipes" / "cuda" / "more"
    folder.mkdir()
    needs = GPU.replace("name: gpu", "name: more") + "requirements: {run: [gpu]}\n"
    (folder / "recipe.yaml").write_text(needs)
    assert make_plan(power.settings, POWER, VERSION).absent["more-cuda124"] == "needs gpu"
    (power.repo / "recipes" / "absent.yaml").write_text(f"{POWER}-cuda124: {{bli: none}}\n")
    with pytest.raises(InputError, match=r"linux-ppc64le-cuda124: 'bli' is no recipe"):
        make_plan(power.settings, POWER, VERSION)


def test_each_platform_has_its_versions(power: MiniTree) -> None:
    settings = power.settings
    assert cuda_versions(settings) == []
    assert cuda_variants(settings) == [(POWER, VERSION)]
    with pytest.raises(InputError, match=r"there are no packages for CUDA 12\.4$"):
        make_plan(settings, cuda=VERSION)
    with pytest.raises(InputError, match=r"no packages for CUDA 13\.0 on linux-ppc64le") as caught:
        make_plan(settings, POWER, "13.0")
    assert caught.value.hint == "there are for 12.4"
    other = power.repo / "recipes" / "debs" / "cuda118.yaml"
    other.write_text(yaml.safe_dump(TABLE | {"subdir": "linux-64"}))
    assert cuda_versions(settings, POWER) == [VERSION]


def test_their_sources_are_in_use_and_fetched_when_asked_for(power: MiniTree) -> None:
    assert "d" * 64 in used_sources(power.settings)
    assert cuda_sources(power.settings) == {"d" * 64}
    assert cuda_sources(power.settings, but=VERSION) == set()


def test_a_channel_offers_them_once_they_are_built(power: MiniTree) -> None:
    """And their noarch packages stay when the build platform's packages alone are published."""
    settings = power.settings
    native, plan = make_plan(settings), make_plan(settings, POWER)
    full = make_plan(settings, POWER, VERSION)
    added = full.steps.keys() - plan.steps.keys()
    assert with_all_built(settings, plan, native).steps.keys() == plan.steps.keys()
    assert with_all_built(settings, native).steps.keys() == native.steps.keys()
    for output in (o for name in added for o in full.steps[name].outputs):
        package = settings.store / output.subdir / output.filename
        package.parent.mkdir(parents=True, exist_ok=True)
        package.touch()
    assert with_all_built(settings, plan, native).steps.keys() == full.steps.keys()
    offered = with_all_built(settings, native)
    assert offered.steps.keys() - native.steps.keys() == {"cuda-version-cuda124"}
    # What is offered may be planned from again.
    assert with_all_built(settings, plan, offered).steps.keys() == full.steps.keys()


def test_the_projects_packages_for_power() -> None:
    """Those that libddl is built on: of one CUDA, and with NVIDIA's files as they are."""
    settings = load_settings()
    plan = make_plan(settings, POWER, VERSION)
    made = {n: s for n, s in plan.steps.items() if s.recipe.cuda}
    names = {o.name for step in made.values() for o in step.outputs}
    assert {"cuda-cudart", "cuda-cudart-dev", "cuda-version", "ddl", "nccl"} <= names
    assert {o.subdir for n, s in made.items() for o in s.outputs if o.name != "cuda-version"} == {
        POWER
    }
    for name, recipe in load_cuda_recipes(settings, VERSION, POWER).items():
        if recipe.generated:
            assert "cuda-version 12.4.*" in recipe.data["requirements"]["run"], name
    (ddl,) = made["ddl-cuda124"].outputs
    assert ddl.build.startswith("cuda124_py313")
    assert ddl.rendered["build"]["variant"]["down_prioritize_variant"] == 1
    assert "cuDNN" in plan.absent["pytorch-gpu-cuda124"]
    assert {"horovod-cuda124", "lms-torch-cuda124", "ddl-ce-gpu-cuda124"} <= plan.absent.keys()
