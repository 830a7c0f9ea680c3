"""`ddlce report`: what a real small tree built, for each platform of a manifest."""

from __future__ import annotations

import json

from support.minitree import MiniTree
from support.run import ok

MANIFEST = """\
name: toys
release: "2026.11"
summary: Three toys.
platforms:
  linux-64:
    glibc: "2.36"
  linux-ppc64le:
    glibc: "2.36"
specs: [app]
"""


def test_what_was_built_stands_beside_each_other(tree: MiniTree) -> None:
    envs = tree.repo / "envs"
    envs.mkdir()
    (envs / "toys.yaml").write_text(MANIFEST)
    (tree.repo / "recipes" / "absent.yaml").write_text("linux-ppc64le: {app: there is no sun}\n")

    early = tree.ddlce("report", "toys")
    assert early.returncode == 1
    assert "not built yet: base, lib, app" in early.stderr
    assert "ddlce build" in early.stderr

    assert tree.ddlce("build").returncode == 0
    done = ok(tree.ddlce("report", "toys", "--json"))
    here, power = json.loads(done.stdout)
    assert [here["platform"], power["platform"]] == ["linux-64", "linux-ppc64le"]
    assert [here["emulated"], power["emulated"]] == [False, True]
    assert list(here["packages"]) == ["app", "base", "lib"]
    assert list(power["packages"]) == ["base", "lib"]
    assert power["absent"] == {"app": "there is no sun"}
    files = tree.packages()
    for name, package in here["packages"].items():
        file = f"{name}-{package['version']}-{package['build']}.conda"
        assert package["size"] == len(files[file])
        assert package["tests"] == 1
        assert package["noarch"]
        assert package["seconds"] > 0

    page = tree.repo / "page.md"
    assert tree.ddlce("report", "toys", "--out", str(page)).returncode == 0
    rows = [line.split("|") for line in page.read_text().splitlines() if line.startswith("| ")]
    assert [row[1].strip() for row in rows] == ["Package", "app", "base", "lib", "Recipe", "app"]
    assert "absent" in rows[1][6]
    assert rows[5][2].strip() == "there is no sun"


def test_an_environment_that_is_not_there(tree: MiniTree) -> None:
    done = tree.ddlce("report", "moon")
    assert done.returncode == 2
    assert "moon.yaml" in done.stderr
    assert "Traceback" not in done.stderr
