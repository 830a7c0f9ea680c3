"""`ddlce lock diff`: what changes from one lock to another, as users will notice it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.lockpair import NEW, OLD, lock, package
from support.minitree import MiniTree, make_tree

PAGE = f"""\
# toy for linux-64, from 2026.11-{OLD.digest[:8]} to 2026.12-{NEW.digest[:8]}

9 → 9 packages; 9.0 → 18.0 MB to download.

## What users will notice

- python 3.11.2 → 3.12.1: overlays, clones and compiled extensions are made anew.
- torchlike 2.13 → 2.14: what you compiled for torchlike >=2.13,<2.14, is compiled anew.
- It needs glibc 2.34 or newer; it was 2.28.
- going 1.0 is not there any more.
- numeric 2.4 → 3.0: the first number rises, so its interface may have changed.
- sinking 1.10 → 1.9 goes back.
- The environment variable A is `2`; it was `1`.
- The environment variable B is `x`; it was not set.

## Versions

| package | 2026.11 | 2026.12 | MB |
|---|---|---|---|
| coming | | 1.0 | +9.0 |
| going | 1.0 | | -1.0 |
| numeric | 2.4 | 3.0 | +0.0 |
| python | 3.11.2 | 3.12.1 | +0.0 |
| sinking | 1.10 | 1.9 | +0.0 |
| torchlike | 2.13 | 2.14 | +1.0 |

Built anew with the same version: extension.

## Licences

| package | 2026.11 | 2026.12 |
|---|---|---|
| coming | | GPL-3.0-only |
| numeric | MIT | BSD-3-Clause |

## ABI pins

| package | 2026.12 | 2026.11 was compiled for | by |
|---|---|---|---|
| torchlike | 2.14 | torchlike >=2.13,<2.14 | extension |
"""


@pytest.fixture
def tree(tmp_path: Path) -> MiniTree:
    tree = make_tree(tmp_path)
    (tmp_path / "old.lock").write_text(OLD.to_yaml())
    (tmp_path / "new.lock").write_text(NEW.to_yaml())
    return tree


def test_the_page_says_all_that_changes(tree: MiniTree) -> None:
    ran = tree.ddlce("lock", "diff", "../old.lock", "../new.lock")
    assert (ran.stderr, ran.stdout, ran.returncode) == ("", PAGE, 0)


def test_equal_locks_are_said_to_be(tree: MiniTree) -> None:
    ran = tree.ddlce("lock", "diff", "../old.lock", "../old.lock")
    assert ran.stdout == "nothing changes: both are toy 2026.11 for linux-64, " + (
        f"digest {OLD.digest[:8]}\n"
    )


def test_json_has_the_same(tree: MiniTree) -> None:
    ran = tree.ddlce("lock", "diff", "../old.lock", "../new.lock", "--json")
    said = json.loads(ran.stdout)
    assert said["old"] == {
        "digest": OLD.digest,
        "env": "toy",
        "packages": 9,
        "release": "2026.11",
        "size": 9_000_000,
    }
    assert said["notices"][3] == "going 1.0 is not there any more."
    changes = {change["name"]: change for change in said["changes"]}
    assert changes["coming"] == {
        "name": "coming",
        "kind": "new",
        "old": None,
        "new": {"version": "1.0", "build": "h1_0", "license": "GPL-3.0-only", "size": 9_000_000},
    }
    assert {name: change["kind"] for name, change in changes.items()} == {
        "coming": "new",
        "extension": "rebuilt",
        "going": "gone",
        "numeric": "newer",
        "python": "newer",
        "sinking": "older",
        "torchlike": "newer",
    }
    assert said["pins"] == [
        {"name": "torchlike", "version": "2.14", "asked": {"torchlike >=2.13,<2.14": ["extension"]}}
    ]


def test_two_platforms_are_refused(tree: MiniTree, tmp_path: Path) -> None:
    (tmp_path / "power.lock").write_text(lock(package("a"), platform="linux-ppc64le").to_yaml())
    ran = tree.ddlce("lock", "diff", "../old.lock", "../power.lock")
    assert ran.returncode == 2
    assert "one lock is for linux-64, the other for linux-ppc64le" in ran.stderr


def test_neither_a_file_nor_a_release(tree: MiniTree) -> None:
    ran = tree.ddlce("lock", "diff", "../old.lock", "toy/2026.12-01234567")
    assert ran.returncode == 2
    assert "there is no lock ../toy" not in ran.stderr
    assert "toy/2026.12-01234567" in ran.stderr


def test_an_environment_is_locked_without_a_word_between(tree: MiniTree) -> None:
    """`ddlce lock ENV` stays as it was, beside `ddlce lock diff`."""
    for words in (("lock", "absent", "--check"), ("lock", "--check", "absent")):
        ran = tree.ddlce(*words)
        assert ran.returncode == 2
        assert "absent.yaml" in ran.stderr
    ran = tree.ddlce("lock", "--help")
    assert "ddlce lock [OPTIONS] [env]" in " ".join(ran.stdout.split())
    assert "--explicit" in ran.stdout
    assert "ddlce lock diff" in ran.stdout
