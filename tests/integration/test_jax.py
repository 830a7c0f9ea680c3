"""The tests of ddl-jax, on the environment of research: real ranks, and JAX as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.releases import installed
from support.suites import run_suite

pytestmark = [pytest.mark.built, pytest.mark.timeout(1800)]
FOLDER = "sets/full/ddl-jax/tests"


@pytest.fixture(scope="module")
def release() -> Path:
    return installed("ddl-ce-full", "make full")


def test_the_recipe_s_tests_pass(release: Path, tmp_path: Path) -> None:
    run_suite(release, FOLDER, tmp_path, "-m", "not slow")


@pytest.mark.slow
def test_the_recipe_s_long_tests_pass(release: Path, tmp_path: Path) -> None:
    """Among them: the same cases on one and on four ranks."""
    run_suite(release, FOLDER, tmp_path, "-m", "slow")
