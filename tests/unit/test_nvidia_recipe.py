"""From NVIDIA's wheels to recipes, and the recipes of a CUDA variant in a plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from ddlce.errors import InputError
from ddlce.model.source import Source, SourcesLock
from ddlce.model.target import Target
from ddlce.nvidia import nvidia_recipes, read_toolkit
from ddlce.sources.wheelfile import read_wheel
from support.nvidiafiles import toolkit_wheel
from support.wheelfiles import lock_wheel

RUNTIME = {"pypi": "nvidia-demo", "part": "runtime"}
DEVELOPMENT = {"pypi": "nvidia-demo", "part": "development", "exports": "libdemo"}


def locked(path: Path) -> Source:
    wheel = read_wheel(path)
    return lock_wheel(path, package=wheel.name.replace("_", "-"))


def recipes(
    tmp_path: Path, packages: dict[str, Any], *metadata: str, glibc: str = "2.28", more: Any = None
) -> dict[str, dict[str, Any]]:
    """The recipes of packages made of one wheel, and what else the table says."""
    path = tmp_path / "cuda130.yaml"
    table = {"cuda": "13.0", "license": "LicenseRef-EULA", "packages": packages, **(more or {})}
    path.write_text(yaml.safe_dump(table))
    lock = SourcesLock(sources=[locked(toolkit_wheel(tmp_path, "nvidia-demo", *metadata))])
    made = nvidia_recipes(read_toolkit(path, lock, "linux-64"), Target("linux-64", "3.11", glibc))
    return {recipe.name: recipe.data for recipe in made}


def test_the_lock_says_which_libraries_a_wheel_has(tmp_path: Path) -> None:
    assert read_wheel(toolkit_wheel(tmp_path)).sonames == ["libdemo.so.1"]


def test_a_runtime_and_its_development_package(tmp_path: Path) -> None:
    made = recipes(tmp_path, {"libdemo": RUNTIME, "libdemo-dev": DEVELOPMENT})
    runtime, development = made["libdemo"], made["libdemo-dev"]
    needs = ["__glibc >=2.17,<3.0.a0", "cuda-version 13.0.*"]
    assert runtime["requirements"] == {"run": needs}
    assert runtime["package"] == {"name": "libdemo", "version": "13.0.5"}
    assert runtime["build"]["dynamic_linking"]["binary_relocation"] is False
    assert runtime["tests"] == [{"package_contents": {"files": ["lib/libdemo.so.1"]}}]
    assert development["requirements"] == {
        "run": ["cuda-version 13.0.*", "libdemo ==13.0.5"],
        "run_exports": ["libdemo >=13.0.5,<14.0a0"],
    }
    assert "--part development" in development["build"]["script"][0]
    assert development["about"]["license"] == "LicenseRef-EULA"
    assert development["about"]["license_file"] == ["nvidia_demo-13.0.5.dist-info/licenses/LICENSE"]


def test_a_package_with_all_parts_exports_itself(tmp_path: Path) -> None:
    (made,) = recipes(tmp_path, {"demo": {"pypi": "nvidia-demo", "part": "all"}}).values()
    assert made["requirements"]["run_exports"] == ["demo >=13.0.5,<14.0a0"]


@pytest.mark.parametrize(
    ("packages", "metadata", "message"),
    [
        ({"x": {**RUNTIME, "pypi": "nvidia-x"}}, (), "no wheel of nvidia-x is locked"),
        ({"x": {**RUNTIME, "part": "half"}}, (), "packages: x: part"),
        ({"x": {**DEVELOPMENT, "exports": "y"}}, (), "exports 'y', which the file does not have"),
        ({"x": {**RUNTIME, "exports": "x"}}, (), "'exports' names the runtime package of a dev"),
        ({"x": {**RUNTIME, "add": ["zlib"]}}, (), "'add' corrects the wheel's metadata: say why"),
        ({"x": RUNTIME}, ("Requires-Dist: nvidia-y",), "no package is made from nvidia-y"),
    ],
)
def test_wrong_entries(
    tmp_path: Path, packages: dict[str, Any], metadata: tuple[str, ...], message: str
) -> None:
    with pytest.raises(InputError) as caught:
        recipes(tmp_path, packages, *metadata)
    assert message in caught.value.message
    assert "cuda130.yaml" in caught.value.message


def test_a_wheel_for_a_newer_glibc_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"needs glibc 2\.17; packages for linux-64 run on 2\.12"):
        recipes(tmp_path, {"x": RUNTIME}, glibc="2.12")


def test_the_version_of_cuda_is_a_version(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cuda130\.yaml: cuda: "):
        recipes(tmp_path, {"x": RUNTIME}, more={"cuda": "13"})


def test_a_table_names_its_installer(tmp_path: Path) -> None:
    (usual,) = recipes(tmp_path, {"libdemo": RUNTIME}).values()
    assert "/install_nvidia.py" in usual["build"]["script"][0]
    more = {"installer": ["install_other.py", "install_nvidia.py"]}
    (other,) = recipes(tmp_path, {"libdemo": RUNTIME}, more=more).values()
    assert "/install_other.py" in other["build"]["script"][0]
    with pytest.raises(InputError, match="installer"):
        recipes(tmp_path, {"libdemo": RUNTIME}, more={"installer": []})
