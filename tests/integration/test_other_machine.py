"""Packages are made of packages alone: built on another system, they are the same, byte for byte.

The other system is Debian 13 as debootstrap makes it: no compiler, no make, no CMake, another C
library, and no network. Sources and the packages below are carried in.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from ddlce.files import link_or_copy
from ddlce.plan import make_plan
from ddlce.settings import Settings, load_settings
from ddlce.store import Store
from support.run import run
from support.userlands import userland

TREE = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.built,
    pytest.mark.timeout(1800),  # the first makes the system
    pytest.mark.skipif(os.geteuid() != 0, reason="debootstrap needs root"),
    pytest.mark.skipif(not shutil.which("bwrap"), reason="needs bubblewrap and debootstrap"),
]

#: The large ones are compared by `make test-full`.
RECIPES = [
    "libzlib",
    *(
        pytest.param(name, marks=pytest.mark.slow)
        for name in ("openssl", "python", "ddl", "ddl-torch")
    ),
]


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_same_bytes_on_a_system_without_build_tools(
    recipe: str, prefix: Path, tmp_path: Path
) -> None:
    other, settings = userland("debian-13"), load_settings()
    python, cache = builder(prefix, tmp_path / "venv"), tmp_path / "cache"
    made = carry_in(settings, recipe, cache)
    done = other.run(
        [python, "-m", "ddlce", "build", recipe],
        writable=[tmp_path],
        readable=[TREE, prefix, settings.sources],
        variables={"DDLCE_CACHE": str(cache), "DDLCE_REPO": str(TREE)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for package in made:
        again = cache / "packages" / package.parent.name / package.name
        assert again.read_bytes() == package.read_bytes(), package.name


def builder(prefix: Path, folder: Path) -> Path:
    """The tree's ddlce on the release's Python, which runs on any system."""
    run([prefix / "bin/python", "-m", "venv", "--without-pip", folder], check=True)
    (ours,) = (TREE / ".venv/lib").glob("python3.*/site-packages")
    (site,) = (folder / "lib").glob("python3.*/site-packages")
    if site.parent.name != ours.parent.name:
        pytest.skip(f"{TREE}/.venv is of {ours.parent.name}, the release of {site.parent.name}")
    (site / "tree.pth").write_text(f"{ours}\n{TREE / 'scripts'}\n")
    return folder / "bin" / "python"


def carry_in(settings: Settings, recipe: str, cache: Path) -> list[Path]:
    """Give a cache the sources and what a recipe stands on; returns the recipe's own packages."""
    plan, store, carried = make_plan(settings), Store(settings.store), Store(cache / "packages")
    for name in plan.sandbox(recipe):
        for output in plan.steps[name].outputs:
            file = (output.subdir, output.filename)
            link_or_copy(store.package(*file), carried.package(*file))
    (cache / "sources").symlink_to(settings.sources)
    made = [store.package(o.subdir, o.filename) for o in plan.steps[recipe].outputs]
    assert all(package.exists() for package in made), f"{recipe} is not built: make"
    return made
