"""The tests of ddl-jax, and of Keras on JAX, on the environment of research."""

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


@pytest.mark.parametrize(
    ("folder", "file"),
    [
        ("ddl-tensorflow/tests", "test_backends.py"),
        ("horovod/tests", "test_horovod_keras.py"),
        ("horovod/tests", "test_horovod_keras_partial.py"),
    ],
)
def test_keras_on_jax(release: Path, tmp_path: Path, folder: str, file: str) -> None:
    run_suite(release, folder, tmp_path, file, "-m", "not slow", "-k", "jax")


@pytest.mark.slow
def test_the_recipe_s_long_tests_pass(release: Path, tmp_path: Path) -> None:
    """Among them: the same cases on one and on four ranks."""
    run_suite(release, FOLDER, tmp_path, "-m", "slow")
