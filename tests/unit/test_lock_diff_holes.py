"""`ddlce lock diff --advisories`: the known holes that come and go with a release."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ddlce.model.envlock import EnvLock
from ddlce.sbom.release import Release
from support.lockpair import NEW, OLD
from support.minitree import MiniTree, make_tree

VEX = """\
statements:
- {vulnerability: PYSEC-4, package: going, status: fixed, statement: By our own patch.}
"""


def write_sbom(folder: Path, lock: EnvLock, **versions: str) -> Path:
    """As `ddlce sbom` writes it, with parts of PyPI's of these versions."""
    release = Release.of(lock)
    components = [
        {"name": name, "pedigree": {"ancestors": [{"purl": f"pkg:pypi/{name}@{version}"}]}}
        for name, version in versions.items()
    ]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{release.name}.cdx.json"
    data = {"bomFormat": "CycloneDX", "serialNumber": f"urn:uuid:{release.number}"}
    path.write_text(json.dumps({**data, "components": components}))
    return path


def advisory(number: str, name: str, introduced: str, *fixed: str) -> dict[str, Any]:
    events = [{"introduced": introduced}, *({"fixed": version} for version in fixed)]
    package = {"ecosystem": "PyPI", "name": name}
    affected = {"package": package, "ranges": [{"type": "ECOSYSTEM", "events": events}]}
    return {"id": number, "modified": "2026-11-01T00:00:00Z", "affected": [affected]}


ADVISORIES = (
    advisory("PYSEC-1", "numeric", "0", "2.5"),
    advisory("PYSEC-2", "numeric", "3.0"),
    advisory("PYSEC-3", "same", "0"),
    advisory("PYSEC-4", "going", "0"),
    advisory("PYSEC-5", "coming", "9.0"),
)


@pytest.fixture
def tree(tmp_path: Path) -> MiniTree:
    tree = make_tree(tmp_path)
    (tmp_path / "old.lock").write_text(OLD.to_yaml())
    (tmp_path / "new.lock").write_text(NEW.to_yaml())
    sboms = tree.repo / "channel" / "sbom"
    write_sbom(sboms, OLD, numeric="2.4", same="1.0", going="1.0")
    write_sbom(sboms, NEW, numeric="3.0", same="1.0", coming="1.0")
    (tmp_path / "data").mkdir()
    for each in ADVISORIES:
        (tmp_path / "data" / f"{each['id']}.json").write_text(json.dumps(each))
    (tree.repo / "recipes" / "vex.yaml").write_text(VEX)
    return tree


DIFF = ("lock", "diff", "../old.lock", "../new.lock")

PART = """\

## Known holes

1 closed, 1 new, 1 stays open, by 5 advisories, the newest of 2026-11-01.

| package | hole | 2026.11 | 2026.12 |
|---|---|---|---|
| numeric | PYSEC-2 | | open |
| same | PYSEC-3 | open | open |
| numeric | PYSEC-1 | open | |
"""


def test_the_page_has_the_holes(tree: MiniTree) -> None:
    plain = tree.ddlce(*DIFF).stdout
    ran = tree.ddlce(*DIFF, "--advisories", "../data")
    assert (ran.stderr, ran.stdout, ran.returncode) == ("", plain + PART, 0)
    said = json.loads(tree.ddlce(*DIFF, "--advisories", "../data", "--json").stdout)
    assert said["holes"] == [
        {"package": "numeric", "hole": "PYSEC-2", "old": None, "new": "open"},
        {"package": "same", "hole": "PYSEC-3", "old": "open", "new": "open"},
        {"package": "numeric", "hole": "PYSEC-1", "old": "open", "new": None},
        {"package": "going", "hole": "PYSEC-4", "old": "fixed", "new": None},
    ]


def test_parts_that_no_data_are_about_are_named(tree: MiniTree, tmp_path: Path) -> None:
    """A lock whose parts were not looked up seemed to have no holes."""
    for each in ADVISORIES:
        each = json.loads(json.dumps(each).replace("PyPI", "Debian:13"))
        (tmp_path / "data" / f"{each['id']}.json").write_text(json.dumps(each))
    ran = tree.ddlce(*DIFF, "--advisories", "../data")
    assert "0 closed, 0 new, 0 stay open, by 5 advisories" in ran.stdout
    assert ran.stdout.endswith(
        "\n\nNot looked up, since the data have nothing of PyPI: coming, going, numeric, same.\n"
    )
    said = json.loads(tree.ddlce(*DIFF, "--advisories", "../data", "--json").stdout)
    assert {part["name"] for part in said["left"]} == {"coming", "going", "numeric", "same"}


def test_an_sbom_of_another_lock_is_refused(tree: MiniTree, tmp_path: Path) -> None:
    """It has the name of the lock's, when the release was locked again."""
    other = NEW.model_copy(update={"specs": ["b"]})
    path = write_sbom(tree.repo / "channel" / "sbom", other, numeric="3.0")
    ran = tree.ddlce(*DIFF, "--advisories", "../data")
    assert ran.returncode == 2
    assert f"{path} is not of this lock, {NEW.digest[:8]}" in " ".join(ran.stderr.split())
    assert "make it again with: ddlce sbom" in ran.stderr
    write_sbom(tmp_path / "mine", OLD)
    write_sbom(tmp_path / "mine", NEW)
    ran = tree.ddlce(*DIFF, "--advisories", "../data", "--sboms", "../mine")
    assert "0 closed, 0 new, 0 stay open, by 5 advisories" in ran.stdout
    (tree.repo / "envs" / "locks").mkdir(parents=True, exist_ok=True)
    (tree.repo / "envs" / "locks" / "toy.linux-64.lock").write_text(NEW.to_yaml())
    ran = tree.ddlce("advisories", "toy", "--from", "../data")
    assert f"is not of this lock, {NEW.digest[:8]}" in " ".join(ran.stderr.split())


def test_no_sbom(tree: MiniTree) -> None:
    ran = tree.ddlce(*DIFF, "--advisories", "../data", "--sboms", "..")
    assert ran.returncode == 2
    assert "there is no SBOM" in ran.stderr
