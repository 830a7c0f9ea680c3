"""Every lint rule on a recipe that keeps it and one that breaks it; whole messages."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from ddlce.lint import registries
from ddlce.lint.linted import Tree
from ddlce.lint.rule import RULES, rule
from ddlce.lint.run import lint_recipe, linted
from ddlce.lint.shell import and_lists, exits_on_error
from ddlce.recipes import load_recipe
from support.minitree import MiniTree

SHA = "ab" * 32

GOOD = f"""\
schema_version: 1

context:
  version: "1.10"

package:
  name: pkg
  version: ${{{{ version }}}}

source:
  - url: https://example.org/pkg-1.10.tar.gz
    sha256: {SHA}
  - path: src

build:
  number: 0
  string: h${{{{ digest }}}}_0
  dynamic_linking:
    overlinking_behavior: error

requirements:
  build:
    - ${{{{ compiler('c') }}}}
    - ${{{{ stdlib('c') }}}}
  host:
    - python
    - pip
    - setuptools
    - libzlib
  run:
    - python
    - numpy >=1.21,<3
  run_exports:
    - ${{{{ pin_subpackage('pkg', upper_bound='x.x') }}}}

tests:
  - package_contents:
      lib: [pkg]

about:
  homepage: https://example.org
  license: Apache-2.0 WITH LLVM-exception AND LicenseRef-Pkg
  license_file: LICENSE
  summary: A package

extra:
  recipe-maintainers:
    - ddl-ce
"""

MULTI = """\
schema_version: 1

recipe:
  name: pkg
  version: "2"

build:
  number: 0

outputs:
  - package:
      name: libpkg
    build:
      string: h${{ digest }}_0
      noarch: generic
    tests:
      - script: [test -f x]
  - package:
      name: pkg-tools
    build:
      string: h${{ digest }}_0
      noarch: generic
    requirements:
      run:
        - ${{ pin_subpackage('libpkg', exact=True) }}
    tests:
      - script: [test -f x]

about:
  homepage: https://example.org
  license: MIT
  license_file: LICENSE
  summary: Packages

extra:
  recipe-maintainers: [ddl-ce]
"""

BUILD = 'set -euo pipefail\nmake -j"$CPU_COUNT"\nif a && b; then make install; fi\n'

TREE = Tree(
    locked=frozenset({SHA}),
    variants=frozenset({"c_compiler", "c_stdlib", "python", "libzlib"}),
    registries=frozenset({"packages.example.net"}),
    places=("/srv/someone/tree",),
)


def findings(folder: Path, text: str, files: dict[str, str | bytes]) -> list[str]:
    """What lint says of a recipe's folder with this recipe and these files."""
    recipe_folder = folder / "recipes" / "pkg"
    for name, content in {"recipe.yaml": text, "build.sh": BUILD, **files}.items():
        path = recipe_folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    (recipe_folder / "src").mkdir(exist_ok=True)
    (recipe_folder / "LICENSE").write_text("Do what you like.\n")
    recipe = load_recipe(recipe_folder / "recipe.yaml")
    return [str(finding) for finding in lint_recipe(linted(recipe, TREE), folder)]


@pytest.mark.parametrize("text", [GOOD, MULTI])
def test_a_good_recipe_has_no_findings(tmp_path: Path, text: str) -> None:
    assert findings(tmp_path, text, {}) == []


def test_a_number_in_each_output_is_not_seen_by_conda_smithy(tmp_path: Path) -> None:
    assert MULTI.count("  number: 0\n") == 1
    text = MULTI.replace("  number: 0\n", "  noarch: generic\n", 1)
    text = text.replace("    build:\n", "    build:\n      number: 0\n")
    found = findings(tmp_path, text, {})
    assert [line.split(": ")[1] for line in found] == ["error R011 build-number"]


def test_an_about_in_each_output_is_not_seen_either(tmp_path: Path) -> None:
    top = MULTI[MULTI.index("about:") : MULTI.index("\nextra:")]
    own = "\n".join(f"    {line}" for line in top.splitlines())
    text = MULTI.replace(top, "").replace("    tests:\n", f"{own}\n    tests:\n")
    found = findings(tmp_path, text, {})
    assert {line.split(": ")[1] for line in found} == {"error R003 about-complete"}
    assert len(found) == 3


CASES: list[dict[str, Any]] = yaml.safe_load(
    Path(__file__).with_name("lint_cases.yaml").read_text()
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["breaks"])
def test_a_bad_recipe(tmp_path: Path, case: dict[str, Any]) -> None:
    """The good recipe with some changes: exactly these messages, and the rule among them."""
    text = GOOD
    for old, new in case.get("changes", ()):
        assert old in text
        text = text.replace(old, new, 1)
    found = findings(tmp_path, text, case.get("files", {}))
    assert "\n".join(found) + "\n" == case["says"]
    assert any(f" {case['breaks']} " in finding for finding in found)


def test_every_rule_has_a_case_and_a_document() -> None:
    assert {case["breaks"] for case in CASES} == set(RULES)
    assert all(len(rule.doc) > 30 for rule in RULES.values())


def test_an_id_is_given_once() -> None:
    with pytest.raises(ValueError, match="rule R001 is registered twice"):
        rule("R001", "again")(RULES["R002"].check)


def test_conditions_are_seen_in_both_branches(tmp_path: Path) -> None:
    text = GOOD.replace(
        "    - numpy >=1.21,<3\n",
        "    - if: linux\n      then: numpy>=1\n      else: [scipy>=1]\n",
    )
    found = findings(tmp_path, text, {})
    assert [line.split(": ")[3] for line in found] == ["requirements.run"] * 2


def test_a_rule_can_be_skipped_with_a_reason(tmp_path: Path) -> None:
    text = GOOD.replace("  dynamic_linking:\n    overlinking_behavior: error\n", "")
    assert len(findings(tmp_path, text, {})) == 1
    assert findings(tmp_path, text + '  skip-lints: {D004: "a plugin of its host"}\n', {}) == []
    assert len(findings(tmp_path, text + '  skip-lints: {D004: ""}\n', {})) == 1


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("set -e\n", True),
        ("# why\n\nset -euo pipefail\n", True),
        ("set -o errexit\n", True),
        ("#!/bin/bash -e\nmake\n", True),
        ("#!/usr/bin/env bash\nset -uo pipefail\n", False),
        ("make\nset -e\n", False),
        ("", False),
    ],
)
def test_set_e(script: str, expected: bool) -> None:
    assert exits_on_error(script) is expected


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("a && b", [(1, "a && b")]),
        ("\na; b && c", [(2, "b && c")]),
        ("a \\\n  -x &&\n b\nc", [(1, "a -x && b")]),
        ("if x; then a && b; fi", [(1, "a && b")]),
        ("(cd x && make)", []),
        ("if a && b; then c; fi", []),
        ("while a && b; do c; done", []),
        ("[[ -d x ]] && rm x", []),
        ("[ -d x ] && rm x", []),
        ("test -d x && rm x", []),
        ("a && b || c", []),
        ("# a && b", []),
        ("echo 'a && b'", []),
        ("x=$(a && b)", []),
        ("cat <<'END'\na && b\nEND\n", []),
        ('echo "a\nb && c"', []),
    ],
)
def test_and_lists(script: str, expected: list[tuple[int, str]]) -> None:
    assert list(and_lists(script)) == expected


def test_registries_are_read_from_the_clients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "https://wheels.example.net/simple")
    monkeypatch.setenv("npm_config_registry", "https://npm.example.net/")
    (tmp_path / "site.list").write_text("deb https://debs.example.net/debian stable main\n")
    (tmp_path / "more.sources").write_text("URIs: http://10.0.0.1/x http://more.example.net/y\n")
    (tmp_path / "old.save").write_text("deb https://gone.example.net/ x\n")
    monkeypatch.setattr(registries, "SOURCES", (tmp_path,))
    hosts = registries.registry_hosts()
    assert {"wheels.example.net", "debs.example.net", "more.example.net"} <= hosts
    assert not {"gone.example.net", "10.0.0.1"} & hosts
    if shutil.which("npm"):
        assert "npm.example.net" in hosts


def test_the_command(tree: MiniTree) -> None:
    recipe = tree.recipe("pkg") / "recipe.yaml"
    recipe.write_text(MULTI)
    done = tree.ddlce("lint", "pkg")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "lint: no errors, 0 hint(s)\n")
    recipe.write_text(MULTI.replace("license: MIT", "license: MITT"))
    done = tree.ddlce("lint", "pkg")
    assert done.returncode == 2
    assert "recipes/pkg/recipe.yaml:31: error R004 spdx-licence" in done.stdout
    assert done.stderr == (
        "error: 3 problem(s) in 1 recipe(s)\n"
        "hint:  each has its rule's id above; 'ddlce lint --explain ID' says what the rule is for\n"
    )
    found = json.loads(tree.ddlce("lint", "pkg", "--json").stdout)
    assert [finding["rule"] for finding in found] == ["R001", "R004", "R004"]
    unknown = tree.ddlce("lint", "nothing")
    assert (unknown.returncode, unknown.stderr) == (
        2,
        "error: no recipe is called nothing\n"
        "hint:  see the folders under recipes/, and recipes/wheels/wheels.yaml\n",
    )
    assert "R004  error  spdx-licence" in tree.ddlce("lint", "--rules").stdout
    explained = tree.ddlce("lint", "--explain", "r033")
    assert explained.returncode == 2
    explained = tree.ddlce("lint", "--explain", "r023")
    assert "declares the glibc floor" in explained.stdout
    assert "Covers conda-smithy's R-033." in explained.stdout


def test_the_document_lists_the_rules_as_they_are() -> None:
    text = (Path(__file__).parents[2] / "docs/lint-rules.md").read_text()
    for found in RULES.values():
        first = " ".join(found.doc.split("\n\n")[0].split())
        smithy = " ".join(found.smithy)
        assert f"| {found.id} | {found.name} | {found.level} | {smithy} | {first} |\n" in text
    assert len(RULES) == sum(line.startswith(("| R0", "| D0")) for line in text.splitlines()) - 1
