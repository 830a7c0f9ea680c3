"""From wheels to recipes: what is read, what is made of it, what is refused."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.version import Version
from rattler_build import RenderConfig, Stage0Recipe, VariantConfig

from ddlce.engine.index import index_channel
from ddlce.engine.solve import solve
from ddlce.engine.variants import glibc_floor as variants_floor
from ddlce.errors import InputError, SourceError
from ddlce.model.source import SourcesLock
from ddlce.model.target import Target
from ddlce.sources.wheelfile import normalise_license, read_wheel
from ddlce.wheels import wheel_recipes
from ddlce.wheels.recipe import glibc_floor
from support.minichannel import Pkg, pack
from support.run import run
from support.wheelfiles import lock_wheel, make_wheel

REPO = Path(__file__).parents[2]
METADATA = ("License-Expression: MIT", "Home-page: https://d.org")


def recipe_of(tmp_path: Path, entry: dict[str, Any] | None = None, **wheel: Any) -> dict[str, Any]:
    """The recipe of one wheel package `demo`, with a package `other` beside it."""
    wheels = tmp_path / "wheels"
    wheels.mkdir(exist_ok=True)
    lock = SourcesLock(
        sources=[
            lock_wheel(make_wheel(tmp_path, **wheel)),
            lock_wheel(make_wheel(tmp_path, "other", "2.0")),
        ]
    )
    manifest = wheels / "wheels.yaml"
    manifest.write_text(yaml.safe_dump({"wheels": {"demo": entry, "py-other": {"pypi": "other"}}}))
    made = {r.name: r for r in wheel_recipes(manifest, lock, Target("linux-64", "3.11"))}
    assert set(made) == {"demo", "py-other"}
    return made["demo"].data


def compiled_library(folder: Path, *flags: str) -> bytes:
    """A real shared library that needs libstdc++ and another library of the same wheel."""
    (folder / "other.c").write_text("int other(void) { return 1; }")
    (folder / "lib.cc").write_text(
        'extern "C" int other(void);\n#include <string>\n#include <vector>\n'
        "int size(const char *t) { return std::string(t).size() + other(); }"
    )
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-Wl,-soname,libother.so.3", "-o", "libother.so", "other.c"],
        cwd=folder,
        check=True,
    )
    command = ["g++", "-shared", "-fPIC", "-o", "ext.so", "lib.cc", "./libother.so", *flags]
    subprocess.run(command, cwd=folder, check=True)
    return (folder / "ext.so").read_bytes()


def test_a_pure_wheel_becomes_a_noarch_package_with_entry_points(tmp_path: Path) -> None:
    data = recipe_of(
        tmp_path,
        metadata=(
            "License-Expression: apache-2.0",
            "Project-URL: Source Code, https://demo.org/src",
            "Requires-Python: >=3.9",
            "Requires-Dist: Other<3,>=1.5",
            'Requires-Dist: missing; extra == "all"',
        ),
        scripts="[console_scripts]\ndemo = demo:main\nX = demo.sub:obj.run [extra]\n",
    )
    assert data["build"]["noarch"] == "python"
    assert data["build"]["python"]["entry_points"] == ["X = demo.sub:obj.run", "demo = demo:main"]
    assert data["build"]["string"] == "pyh${{ digest }}_0"
    assert data["requirements"] == {"run": ["python >=3.9", "py-other >=1.5,<3dev0"]}
    assert data["about"]["license"] == "Apache-2.0"
    assert data["about"]["homepage"] == "https://demo.org/src"
    assert data["about"]["license_file"] == ["demo-1.0.dist-info/licenses/LICENSE"]
    assert data["tests"] == [{"python": {"imports": ["demo"], "pip_check": True}}]
    assert data["source"][0]["url"] == "pypi://demo==1.0/demo-1.0-py3-none-any.whl"


def test_the_names_of_authors_are_no_licence(tmp_path: Path) -> None:
    """Some metadata list them with the licences; the installer takes out the licences alone."""
    info = "demo-1.0.dist-info"
    data = recipe_of(
        tmp_path,
        metadata=(*METADATA, "License-File: AUTHORS.txt", "License-File: LICENSE.txt"),
        files={f"{info}/AUTHORS.txt": b"me\n", f"{info}/LICENSE.txt": b"free\n"},
        license_text=None,
    )
    assert data["about"]["license_file"] == [f"{info}/LICENSE.txt"]


def test_a_compiled_wheel_is_pinned_and_left_as_it_is(tmp_path: Path) -> None:
    ext = compiled_library(tmp_path)
    data = recipe_of(
        tmp_path,
        files={
            "demo/ext.so": ext,
            "demo.libs/libother.so": (tmp_path / "libother.so").read_bytes(),
        },
        tag="cp311-cp311-manylinux_2_34_x86_64",
    )
    run = data["requirements"]["run"]
    assert run[:2] == ["python", "python_abi 3.11.* *_cp311"]
    assert any(d.startswith("__glibc >=2.3") for d in run)
    assert "libstdcxx" in run
    assert "noarch" not in data["build"]
    assert data["build"]["string"] == "py311h${{ digest }}_0"
    assert data["build"]["dynamic_linking"] == {"binary_relocation": False}
    assert data["build"]["prefix_detection"] == {"ignore_binary_files": True}
    script = data["build"]["script"][0]
    assert "--python 3.11 --scripts --library" in script
    assert ' --library libstdc++.so.6 --compiler "$BUILD_PREFIX/bin/python"' in script
    assert data["requirements"]["build"] == ["python 3.11.*"]


def test_a_compiled_wheel_is_for_one_python_only(tmp_path: Path) -> None:
    """Its python has no version: python_abi, as its own recipe constrains it, must do."""
    wheel = recipe_of(tmp_path, tag="cp311-cp311-linux_x86_64", files={"demo/x.so": b"no ELF"})
    (abi,) = Stage0Recipe.from_file(REPO / "recipes/base/python_abi/recipe.yaml").render(
        VariantConfig(), RenderConfig(extra_context={"digest": "0123456789"})
    )
    made = abi.recipe.to_dict()
    build, constrains = made["build"]["string"], made["requirements"]["run_constraints"]
    channel = tmp_path / "channel"
    for version, string in (("3.11.7", "0_cpython"), ("3.12.1", "0_cpython"), ("3.11.9", "0_pypy")):
        pack(Pkg("python", version, build=string), channel)
    pack(Pkg("python_abi", "3.11", build=build, constrains=constrains, noarch="generic"), channel)
    pack(
        Pkg("python_abi", "3.12", build="1_cp312", constrains=["python 3.12.* *_cpython"]), channel
    )
    pack(Pkg("demo", depends=wheel["requirements"]["run"]), channel)
    index_channel(channel)

    def solved(*specs: str) -> set[str]:
        where = {"mini": channel.as_uri()}
        found = solve(list(specs), where, "linux-64", {"__glibc": "2.28"}, tmp_path / "cache")
        return {f"{p.name} {p.version} {p.build}" for p in found}

    assert solved("demo") == {
        "demo 1.0 h0_0",
        f"python_abi 3.11 {build}",
        "python 3.11.7 0_cpython",
    }
    for other in ("python 3.12.*", "python 3.11.9"):
        with pytest.raises(InputError, match="python_abi"):
            solved("demo", other)


def test_a_library_that_nobody_has_is_an_error_unless_optional(tmp_path: Path) -> None:
    ext = compiled_library(tmp_path)
    files = {"demo/ext.so": ext}  # libother is left out
    with pytest.raises(InputError, match=r"needs libother.so.3, which it does not bundle"):
        recipe_of(tmp_path, files=files, tag="cp311-cp311-linux_x86_64")
    entry = {"ignore_needed": ["libother.so.3"], "why": "loaded only if asked for"}
    data = recipe_of(tmp_path, entry, files=files, tag="cp311-cp311-linux_x86_64")
    assert data["build"]["dynamic_linking"]["missing_dso_allowlist"] == ["libother.so.3"]


def test_the_manifest_corrects_and_adds(tmp_path: Path) -> None:
    entry = {
        "why": "for the test",
        "add": ["mpi"],
        "constrains": ["old <2"],
        "imports": ["demo"],
        "commands": ["demo --help"],
        "test_requires": ["py-other"],
        "license": "BSD-3-Clause",
        "run_exports": "x.x",
        "build_prefix": "cpu_",
    }
    promised = recipe_of(tmp_path, {"run_exports": "demo >=1.2,<3"})["requirements"]
    assert promised["run_exports"] == ["demo >=1.2,<3"]
    data = recipe_of(tmp_path, entry, version="1.5+cpu", metadata=("Home-page: https://demo.org",))
    assert data["package"] == {"name": "demo", "version": "1.5"}
    assert data["build"]["string"] == "cpu_pyh${{ digest }}_0"
    assert data["requirements"]["run"] == ["python >=3.11", "mpi"]
    assert data["requirements"]["run_constraints"] == ["old <2"]
    assert data["requirements"]["run_exports"] == [
        "${{ pin_subpackage('demo', upper_bound='x.x') }}"
    ]
    assert data["tests"][1] == {
        "script": ["demo --help"],
        "requirements": {"run": ["py-other"]},
    }
    assert data["about"]["license"] == "BSD-3-Clause"


def test_a_requirement_is_met_by_a_build_of_the_distribution(tmp_path: Path) -> None:
    usual = ("License-Expression: MIT", "Home-page: https://demo.org")
    lock = SourcesLock(
        sources=[
            lock_wheel(make_wheel(tmp_path, metadata=(*usual, "Requires-Dist: whole>=1"))),
            lock_wheel(make_wheel(tmp_path, "whole_cpu", "2.0")),
        ]
    )
    manifest = tmp_path / "wheels.yaml"
    part = {"pypi": "whole-cpu", "distribution": "whole", "why": "required by that name"}
    manifest.write_text(yaml.safe_dump({"wheels": {"demo": None, "whole": part}}))
    made = {r.name: r.data for r in wheel_recipes(manifest, lock, Target("linux-64", "3.11"))}
    assert made["demo"]["requirements"]["run"] == ["python >=3.11", "whole >=1"]
    assert made["whole"]["build"]["script"][0].endswith(" --distribution whole")


def test_a_command_alone_is_a_test(tmp_path: Path) -> None:
    entry = {"imports": [], "commands": ["demo --help"], "why": "it needs what is built on it"}
    assert recipe_of(tmp_path, entry)["tests"] == [{"script": ["demo --help"]}]


@pytest.mark.parametrize(
    ("entry", "wheel", "message"),
    [
        ({}, {"metadata": ("Home-page: https://d.org",)}, "states no licence"),
        ({}, {"metadata": ("License: see file", "Home-page: https://d.org")}, "states no licence"),
        ({}, {"metadata": ("License-Expression: MIT",)}, "names no homepage"),
        ({}, {"license_text": None}, "has no licence text inside"),
        ({"license_files": ["licenses/none.txt"]}, {}, "none.txt does not exist"),
        ({"imports": [], "why": "nothing"}, {}, "no importable top-level name"),
        ({"add": ["x"]}, {}, "say why in 'why'"),
        ({"colour": "red"}, {}, "colour"),
        ({"pypi": "absent"}, {}, "no wheel of absent is locked"),
        (
            {},
            {"metadata": (*METADATA, "Requires-Python: >=3.12")},
            "does not support Python 3.11",
        ),
    ],
)  # fmt: skip
def test_what_is_missing_is_named(
    tmp_path: Path, entry: dict[str, Any], wheel: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError) as caught:
        recipe_of(tmp_path, entry, **wheel)
    assert message in caught.value.message
    assert "wheels.yaml" in caught.value.message
    assert "demo" in caught.value.message


def test_two_locked_versions_are_an_error(tmp_path: Path) -> None:
    sources = [lock_wheel(make_wheel(tmp_path, version=v)) for v in ("1.0", "2.0")]
    manifest = tmp_path / "wheels.yaml"
    manifest.write_text("wheels:\n  demo:\n")
    with pytest.raises(InputError, match=r"several wheels of demo: 1\.0, 2\.0"):
        wheel_recipes(manifest, SourcesLock(sources=sources), Target("linux-64", "3.11"))


def test_a_wheel_of_another_platform_makes_no_package(tmp_path: Path) -> None:
    source = lock_wheel(make_wheel(tmp_path), subdir="linux-ppc64le")
    manifest = tmp_path / "wheels.yaml"
    manifest.write_text("wheels:\n  demo:\n")
    assert wheel_recipes(manifest, SourcesLock(sources=[source]), Target("linux-64", "3.11")) == []


@pytest.mark.parametrize("text", ["wheels: [", "wheels: 3", "wheels:\n  demo: 3\n"])
def test_a_broken_manifest_is_named(tmp_path: Path, text: str) -> None:
    manifest = tmp_path / "wheels.yaml"
    manifest.write_text(text)
    with pytest.raises(InputError, match=r"wheels\.yaml"):
        wheel_recipes(manifest, SourcesLock(), Target("linux-64", "3.11"))


@pytest.mark.parametrize(
    ("tags", "symbols", "floor"),
    [
        (["cp311-cp311-manylinux_2_28_x86_64"], "2.17", "2.28"),
        (["a-b-manylinux2014_x86_64", "a-b-manylinux_2_17_x86_64"], "2.14", "2.17"),
        (["a-b-manylinux1_x86_64", "a-b-manylinux_2_5_x86_64"], "2.2.5", "2.5"),
        (["a-b-manylinux_2_27_x86_64", "a-b-manylinux_2_28_x86_64"], "2.27", "2.27"),
        (["cp311-cp311-linux_x86_64"], "2.36", "2.36"),
        (["cp311-cp311-linux_x86_64"], "", ""),
        (["a-b-manylinux_2_5_x86_64"], "2.10", "2.10"),
    ],
)
def test_glibc_floor(tmp_path: Path, tags: list[str], symbols: str, floor: str) -> None:
    wheel = read_wheel(make_wheel(tmp_path))
    assert glibc_floor(wheel.model_copy(update={"tags": tags, "glibc": symbols})) == floor


def test_a_wheel_above_the_floor_is_named(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, metadata=METADATA, tag="py3-none-manylinux_2_31_x86_64")
    lock = SourcesLock(sources=[lock_wheel(wheel)])
    manifest = tmp_path / "wheels.yaml"
    manifest.write_text("wheels:\n  demo:\n")
    for floor in ("", "2.31", "2.100"):
        assert wheel_recipes(manifest, lock, Target("linux-64", "3.11", floor))
    with pytest.raises(InputError) as caught:
        wheel_recipes(manifest, lock, Target("linux-64", "3.11", "2.28"))
    assert caught.value.message == (
        f"{manifest}: demo: demo 1.0 needs glibc 2.31; packages for linux-64 run on 2.28"
    )
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("lock one that fits: ddlce sources add pypi:demo, or")


def test_no_locked_wheel_needs_more_than_the_floor() -> None:
    lock = SourcesLock.load(REPO / "sources.lock")
    floor = variants_floor(REPO / "recipes")
    wheels = [s.wheel for s in lock.sources if s.wheel and s.subdir == "linux-64"]
    needed = {wheel.name: glibc_floor(wheel) or "0" for wheel in wheels}
    assert {n: v for n, v in needed.items() if Version(v) > Version(floor)} == {}
    assert len(needed) > 20


@pytest.mark.parametrize(
    ("metadata", "spdx"),
    [
        ("License-Expression: mit OR apache-2.0", "MIT OR Apache-2.0"),
        ("License: BSD 3-Clause License", "BSD-3-Clause"),
        ("License: BSD-3-Clause", "BSD-3-Clause"),
        ("License: BSD", ""),
        ("License: UNKNOWN", ""),
        ("Classifier: License :: OSI Approved :: MIT License", "MIT"),
        ("Classifier: License :: OSI Approved :: BSD License", ""),
        ("License: Dual License", ""),
    ],
)
def test_licences_are_spdx_or_nothing(tmp_path: Path, metadata: str, spdx: str) -> None:
    assert read_wheel(make_wheel(tmp_path, metadata=(metadata,))).license == spdx


def test_an_exception_is_part_of_an_expression() -> None:
    text = "GPL-3.0-or-later WITH GCC-exception-3.1"
    assert normalise_license(text) == text
    assert normalise_license("no such licence") == ""


def test_imports_are_packages_modules_and_those_in_namespaces(tmp_path: Path) -> None:
    path = make_wheel(
        tmp_path,
        files={
            "one.py": b"",
            "fast.cpython-311-x86_64-linux-gnu.so": b"not a library",
            "space/inner/__init__.py": b"",
            "demo/sub/__init__.py": b"",
            "_private.py": b"",
            "tests/__init__.py": b"",
            "demo.libs/x/__init__.py": b"",
        },
    )
    assert read_wheel(path).imports == ["demo", "fast", "one", "space.inner"]


@pytest.mark.parametrize("content", [b"", b"PK not a zip"])
def test_what_is_no_wheel_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "demo-1.0-py3-none-any.whl"
    path.write_bytes(content)
    with pytest.raises(SourceError, match="not a readable wheel"):
        read_wheel(path)
    odd = tmp_path / "demo.whl"
    shutil.copy(path, odd)
    with pytest.raises(SourceError, match=r"demo\.whl"):
        read_wheel(odd)


def test_a_generated_recipe_is_printed_as_a_file_ends() -> None:
    env = {**os.environ, "DDLCE_REPO": str(REPO)}
    command = [sys.executable, "-m", "ddlce", "sources", "recipe", "six"]
    text = run(command, env=env, check=True).stdout
    assert text.endswith("- ddl-ce\n")


def test_every_wheel_package_of_the_distribution_renders(tmp_path: Path) -> None:
    lock = SourcesLock.load(REPO / "sources.lock")
    made = wheel_recipes(
        REPO / "recipes" / "wheels" / "wheels.yaml", lock, Target("linux-64", "3.11")
    )
    assert {"numpy", "pytorch", "scikit-learn", "mpi4py", "py-rattler"} <= {r.name for r in made}
    config = RenderConfig(extra_context={"digest": "0123456789"})
    for recipe in made:
        path = tmp_path / "recipe.yaml"
        path.write_text(yaml.safe_dump(recipe.data))
        (rendered,) = Stage0Recipe.from_file(path).render(VariantConfig(), config)
        data = rendered.recipe.to_dict()
        assert data["build"]["string"].endswith("h0123456789_0"), recipe.name
        assert all(file.is_file() for file in recipe.files)
