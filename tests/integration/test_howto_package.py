"""The page on adding a package runs as it stands there, in a copy of this tree."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.documents import FENCE, REPO
from support.run import run

pytestmark = pytest.mark.built

PAGE = REPO / "docs" / "howto" / "package.md"
TREE = ("recipes", "envs", "channel", "scripts", "pyproject.toml", "sources.lock", "LICENSE")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The files of this tree that git knows."""
    names = run(["git", "ls-files", "-z", *TREE], cwd=REPO, check=True)
    for name in filter(None, names.stdout.split("\0")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(REPO / name, tmp_path / name, follow_symlinks=False)
    return tmp_path


def test_a_wheel_is_added_as_the_page_says(copy: Path) -> None:
    section = PAGE.read_text().partition("## From a wheel")[2].partition("\n## ")[0]
    said = ""
    for kind, block in FENCE.findall(section):
        if kind == "yaml":
            with (copy / "recipes/wheels/wheels.yaml").open("a") as table:
                table.write(block)
            continue
        for line in re.findall(r"^\$ (.*)$", block, re.MULTILINE):
            # The index is of the whole plan: what `make` does, and copies of gigabytes here.
            command = line.partition("#")[0].replace("&& ddlce index", "")
            done = subprocess.run(
                ["bash", "-c", command],
                cwd=copy,
                env=os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            assert done.returncode == 0, f"{command}\n{done.stdout}"
            said += done.stdout
    assert "locked pypi:more-itertools==" in said
    assert "summary: More routines for operating on iterables" in said  # the recipe
    assert re.search(r"^(build|reuse)  +\w+  more-itertools$", said, re.MULTILINE)  # the plan
    assert re.search(
        r"^(build: 1 recipes in|build: all \d+ recipes are built already)", said, re.MULTILINE
    )
