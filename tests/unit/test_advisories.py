"""`ddlce advisories`: the known holes of a release, from files in the public formats."""

from __future__ import annotations

import json
import shutil
import subprocess
import zipfile
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from ddlce.advisories import debversion
from ddlce.advisories.match import Result, find_holes
from ddlce.advisories.parts import read_parts
from ddlce.advisories.statements import Statement, load_statements
from ddlce.errors import InputError
from support.minitree import MiniTree, make_tree
from support.run import ok

REPO = Path(__file__).parents[2]

#: As `ddlce sbom` writes it, as far as it matters here.
SBOM = {
    "bomFormat": "CycloneDX",
    "components": [
        {
            "name": "python",
            "pedigree": {
                "ancestors": [
                    {"purl": "pkg:deb/debian/python3.11@3.11.2-6%2Bdeb12u8?arch=source"},
                    {"purl": "pkg:deb/debian/python3.11@3.11.2-6%2Bdeb12u9?arch=source"},
                ],
                "patches": [{"resolves": [{"id": "CVE-2024-0450"}]}, {"type": "unofficial"}],
            },
        },
        {
            "name": "pillow",
            "pedigree": {"ancestors": [{"purl": "pkg:pypi/Pillow@9.5.0?file_name=x.whl"}]},
            "components": [
                {"name": "aes", "purl": "pkg:cargo/aes@0.8.4"},
                {"name": "libz"},
            ],
        },
        {
            "name": "pytorch",
            "pedigree": {"ancestors": [{"purl": "pkg:pypi/torch@2.13.0%2Bcpu"}]},
        },
        {
            "name": "glibc",
            "pedigree": {
                "ancestors": [
                    {
                        "purl": "pkg:deb/debian/libc6@2.41-12%2Bb1?"
                        "arch=ppc64el&distro=trixie&upstream=glibc"
                    }
                ]
            },
        },
        {"name": "metapackage"},
    ],
}


def pypi(number: str, name: str, *events: dict[str, str], **more: Any) -> dict[str, Any]:
    """As PyPA's database has it."""
    return {
        "id": number,
        "modified": "2026-10-01T00:00:00Z",
        "details": "A hole.\nMore.",
        "affected": [
            {
                "package": {"ecosystem": "PyPI", "name": name, "purl": f"pkg:pypi/{name}"},
                "ranges": [
                    {"type": "GIT", "repo": "https://x", "events": [{"introduced": "0"}]},
                    {"type": "ECOSYSTEM", "events": list(events)},
                ],
            }
        ],
        **more,
    }


def debian(number: str, source: str, release: str, *events: dict[str, str]) -> dict[str, Any]:
    """As OSV's dump of Debian has it."""
    return {
        "id": f"DEBIAN-{number}",
        "upstream": [number],
        "modified": "2026-09-01T00:00:00Z",
        "affected": [
            {
                "package": {"ecosystem": f"Debian:{release}", "name": source},
                "ranges": [{"type": "ECOSYSTEM", "events": list(events)}],
                "ecosystem_specific": {"urgency": "not yet assigned"},
            }
        ],
    }


#: As the JSON file of Debian's security tracker has it.
TRACKER = {
    "python3.11": {
        "CVE-2024-0450": {
            "description": "Quoted-overlap zip bombs",
            "scope": "local",
            "releases": {
                "bookworm": {
                    "status": "resolved",
                    "repositories": {"bookworm": "3.11.2-6+deb12u8"},
                    "fixed_version": "3.11.2-6+deb12u3",
                    "urgency": "medium",
                }
            },
        },
        "CVE-2026-0001": {
            "description": "No fix yet",
            "releases": {
                "bookworm": {"status": "open", "repositories": {}, "urgency": "low"},
                "trixie": {"status": "resolved", "fixed_version": "0", "urgency": "low"},
            },
        },
        "CVE-2020-0002": {
            "releases": {"bookworm": {"status": "resolved", "fixed_version": "3.11.2-1"}}
        },
    },
    "absent": {"CVE-2026-0003": {"releases": {"bookworm": {"status": "open"}}}},
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    return folder


def parts(folder: Path) -> Path:
    path = folder.parent / "x.cdx.json"
    path.write_text(json.dumps(SBOM))
    return path


def write(folder: Path, **documents: Any) -> None:
    for name, document in documents.items():
        (folder / f"{name}.json").write_text(json.dumps(document))


def search(folder: Path, *statements: Statement) -> Result:
    return find_holes(read_parts(parts(folder)), folder, statements)


def found(folder: Path, *statements: Statement) -> dict[tuple[str, str], str]:
    return {(f.part.package, f.hole): f.status for f in search(folder, *statements).findings}


def test_parts_are_those_that_advisories_are_about(data: Path) -> None:
    said = {(p.package, p.ecosystem, p.name, p.version) for p in read_parts(parts(data))}
    assert said == {
        ("python", "Debian:bookworm", "python3.11", "3.11.2-1"),
        ("pillow", "PyPI", "pillow", "9.5.0"),
        ("pytorch", "PyPI", "torch", "2.13.0+cpu"),
        ("glibc", "Debian:trixie", "glibc", "2.41-12"),
    }


@pytest.mark.parametrize(
    ("events", "hit"),
    [
        ([{"introduced": "0"}, {"fixed": "10.0.0"}], True),
        ([{"introduced": "0"}, {"fixed": "9.5.0"}], False),
        ([{"introduced": "9.5.0"}, {"last_affected": "9.5"}], True),
        ([{"introduced": "0"}, {"last_affected": "9.4"}], False),
        ([{"introduced": "9.6"}, {"fixed": "9.7"}], False),
        ([{"introduced": "0"}, {"fixed": "1.0"}, {"introduced": "9.1"}, {"fixed": "9.10"}], True),
        ([{"fixed": "9.10"}, {"introduced": "9.1"}, {"fixed": "1"}, {"introduced": "0"}], True),
        ([{"introduced": "0"}], True),
    ],
)
def test_ranges_of_versions(data: Path, events: list[dict[str, str]], hit: bool) -> None:
    write(data, one=pypi("PYSEC-2023-227", "pillow", *events))
    assert bool(found(data)) == hit


def test_a_list_of_versions_and_a_local_part(data: Path) -> None:
    listed = pypi("PYSEC-1", "torch")
    listed["affected"][0]["versions"] = ["2004d", "2.13.0"]
    write(data, one=listed)
    assert found(data) == {("pytorch", "PYSEC-1"): "open"}


def test_a_withdrawn_advisory_is_none(data: Path) -> None:
    gone = pypi("PYSEC-1", "pillow", {"introduced": "0"}, withdrawn="2024-01-01T00:00:00Z")
    write(data, gone=gone, other=pypi("PYSEC-2", "absent", {"introduced": "0"}))
    result = search(data)
    assert (result.findings, result.advisories, result.newest) == ((), 1, "2026-10-01T00:00:00Z")


def test_two_databases_tell_of_one_hole(data: Path) -> None:
    range_ = ({"introduced": "0"}, {"fixed": "10.0.0"})
    named = {"aliases": ["CVE-2023-44271"], "database_specific": {"severity": "HIGH"}}
    write(
        data,
        ghsa=pypi("GHSA-8ghj-p4vj-mr35", "Pillow", *range_, **named),
        pysec=pypi("PYSEC-2023-227", "pillow", *range_, aliases=["CVE-2023-44271"]),
    )
    (finding,) = search(data).findings
    assert finding.names == ("CVE-2023-44271", "GHSA-8ghj-p4vj-mr35", "PYSEC-2023-227")
    assert (finding.severity, finding.summary, finding.fixed) == ("high", "A hole.", ("10.0.0",))


def test_patches_and_statements_close_holes(data: Path) -> None:
    write(data, tracker=TRACKER)
    assert found(data) == {
        ("python", "CVE-2024-0450"): "fixed",
        ("python", "CVE-2026-0001"): "open",
    }
    statement = Statement(
        vulnerability="CVE-2026-0001",
        package="python",
        status="not_affected",
        justification="vulnerable_code_not_present",
        statement="The module is left out.",
        test="tests/unit/test_x.py::test_y",
    )
    (*_, last) = search(data, statement).findings
    assert last.status == "not affected"
    assert last.why == "The module is left out. (tests/unit/test_x.py::test_y)"
    assert found(data, statement.model_copy(update={"package": "python-3.13"})) == found(data)


def test_debian_in_osvs_format_is_looked_up_by_release(data: Path) -> None:
    fixed = ({"introduced": "0"}, {"fixed": "2.41-12+deb13u5"})
    with zipfile.ZipFile(data / "all.zip", "w") as archive:
        for number, release in (("CVE-2026-0001", "13"), ("CVE-2026-0002", "12")):
            document = debian(number, "glibc", release, *fixed)
            archive.writestr(f"DEBIAN-{number}.json", json.dumps(document))
    assert found(data) == {("glibc", "CVE-2026-0001"): "open"}


def test_yaml_as_pypas_database_has_it(data: Path) -> None:
    document = pypi("PYSEC-1", "pillow", {"introduced": "0"})
    (data / "vulns").mkdir()
    (data / "vulns" / "PYSEC-1.yaml").write_text(yaml.safe_dump(document))
    assert found(data) == {("pillow", "PYSEC-1"): "open"}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.json", "{", "x.json: cannot be read"),
        ("x.yaml", "a: [", "x.yaml: cannot be read"),
        ("x.json", "[1]", "x.json: neither OSV's format nor that of Debian's tracker"),
        ("x.json", '{"id": "A", "modified": 1, "affected": [1]}', "x.json: not in the format"),
        (
            "x.json",
            json.dumps(pypi("A", "pillow", {"introduced": "never"})),
            "x.json: not in the format",
        ),
        ("x.zip", "PK", "x.zip: not a zip file"),
        ("x.txt", "", "data: no advisories in it"),
    ],
)
def test_files_in_no_format(data: Path, name: str, content: str, message: str) -> None:
    (data / name).write_text(content)
    with pytest.raises(InputError) as caught:
        search(data)
    assert message in caught.value.message
    assert "all.zip" in (caught.value.hint or "")


def test_the_command_says_it_and_exits_with_1(data: Path, tmp_path: Path) -> None:
    write(data, tracker=TRACKER)
    tree = make_tree(tmp_path)
    words = ("advisories", "--from", str(data), "--sbom", str(parts(data)))
    ran = tree.ddlce(*words)
    assert ran.stdout.splitlines() == [
        "open         python: CVE-2026-0001, in python3.11 3.11.2-1 (Debian:bookworm), low, "
        "not fixed yet: No fix yet",
        "not looked up, since the data have nothing of PyPI: pillow, pytorch",
        "not looked up, since the data have nothing of Debian:trixie: glibc",
        "1 holes open, 1 fixed, 0 that do not matter; 1 parts looked up in 4 advisories",
    ]
    assert ran.returncode == 1
    assert "1 holes are open" in ran.stderr
    (tree.repo / "recipes" / "vex.yaml").write_text(
        "statements:\n- {vulnerability: CVE-2026-0001, package: python, status: fixed,\n"
        "   statement: By our own patch.}\n"
    )
    ran = ok(tree.ddlce(*words, "--json"))
    assert [each["status"] for each in json.loads(ran.stdout)["findings"]] == ["fixed", "fixed"]


def test_parts_that_no_data_are_about_are_named(data: Path, tmp_path: Path) -> None:
    """No holes in them, the command seemed to say."""
    write(data, one=pypi("PYSEC-1", "pillow", {"introduced": "0"}, {"fixed": "1"}))
    ran = ok(
        make_tree(tmp_path).ddlce("advisories", "--from", str(data), "--sbom", str(parts(data)))
    )
    *lines, last = ran.stdout.splitlines()
    assert lines[0].startswith("not looked up, since the data have nothing of Debian:")
    assert last.startswith("0 holes open, 0 fixed")


def test_what_is_missing_is_named(data: Path, tmp_path: Path) -> None:
    tree: MiniTree = make_tree(tmp_path)
    ran = tree.ddlce("advisories", "--from", str(tmp_path / "absent"), "--sbom", str(parts(data)))
    assert ran.returncode == 2
    assert f"there is no {tmp_path / 'absent'}" in ran.stderr
    ran = tree.ddlce("advisories", "--from", str(data), "--sbom", "absent.cdx.json")
    assert ran.returncode == 2
    assert "there is no SBOM absent.cdx.json" in ran.stderr
    (tmp_path / "no.json").write_text('{"spdxVersion": 1}')
    ran = tree.ddlce("advisories", "--from", str(data), "--sbom", str(tmp_path / "no.json"))
    assert ran.returncode == 2
    assert "not an SBOM as CycloneDX" in ran.stderr


def test_a_statement_without_a_reason_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "vex.yaml"
    entry = "{vulnerability: CVE-2026-0001, package: python, status: not_affected, statement: No.}"
    path.write_text(f"statements:\n- {entry}\n")
    with pytest.raises(InputError, match="not_affected needs a justification"):
        load_statements(path)


def test_the_trees_statements_name_tests_that_are_there() -> None:
    path = REPO / "recipes" / "vex.yaml"
    for statement in load_statements(path) if path.is_file() else ():
        file, _, name = statement.test.partition("::")
        assert not file or f"def {name}(" in (REPO / file).read_text()


def test_the_programs_of_expat_are_not_built() -> None:
    """CMake is told so, and the recipe's own test refuses a package with one."""
    folder = REPO / "recipes" / "base" / "libexpat"
    assert "-DEXPAT_BUILD_TOOLS=OFF" in (folder / "build.sh").read_text().split()
    tests = yaml.safe_load((folder / "recipe.yaml").read_text())["tests"]
    (contents,) = (test["package_contents"] for test in tests if "package_contents" in test)
    assert "bin/**" in contents["files"]["not_exists"]


VERSIONS = (
    *("1.0", "1.0-1", "1.0-1~deb12u1", "1.0-1+deb12u1", "1.0-10", "1.0~rc1-1", "1:0.5", "0:1.0"),
    *("1.0.dfsg-1", "1.0+dfsg-1", "1.0a-1", "1.0-1ubuntu1", "1.0-0", "01.0-1", "1.0-1.1", "2"),
)


@pytest.mark.skipif(shutil.which("dpkg") is None, reason="no dpkg on this machine")
def test_versions_have_dpkgs_order() -> None:
    for one, other in product(VERSIONS, VERSIONS):
        order = debversion.compare(one, other)
        word = "lt" if order < 0 else "gt" if order else "eq"
        assert subprocess.run(["dpkg", "--compare-versions", one, word, other]).returncode == 0
