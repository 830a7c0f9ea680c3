"""Runs the tests of a recipe's room with the Python of the built environment."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from ddlce.smoke import clean_environment
from support.minienv import packages_alone
from support.run import run

REPO = Path(__file__).parents[2]
RECIPES = REPO / "recipes"
#: Modules that the tests of several recipes have in common.
SHARED = Path(__file__).with_name("shared")


def run_suite(
    prefix: Path,
    room: str,
    folder: Path,
    *arguments: str,
    variables: Mapping[str, str] | None = None,
) -> str:
    """Run pytest on a copy of `recipes/ROOM`; its output if all tests pass.

    A copy, because tests beside their sources would import these, not what is installed. The docs
    are where they are in the tree.

    Args:
        prefix: the environment.
        room: a folder of tests below recipes/.
        folder: an empty one.
        arguments: for pytest.
        variables: for the environment of the tests.
    """
    tests = shutil.copytree(
        RECIPES / room, folder / "recipes" / room, ignore=shutil.ignore_patterns("__pycache__")
    )
    (folder / "docs").symlink_to(REPO / "docs")
    alone = packages_alone(
        folder / "pytest", "pytest", "pluggy", "iniconfig", "hypothesis", "sortedcontainers"
    )
    done = run(
        [
            *(prefix / "bin" / "python", "-m", "pytest", "-q", "-ra"),
            *("-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", tests),
            *("-o", "markers=slow: runs in `make test-full` only"),
            *arguments,
        ],
        cwd=tests,
        env={
            **clean_environment(prefix, os.environ),
            "PYTHONPATH": os.pathsep.join([str(alone), str(SHARED)]),
            "PYTHONDONTWRITEBYTECODE": "1",
            **(variables or {}),
        },
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    return done.stdout
