"""The tests that stand in the recipes' rooms, on the packages of the built environment.

Real ranks, real launches, and everything that must fail: other shapes on other ranks, a killed, a
hanging and a failing rank, hosts that cannot be reached.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from support.libddl import build_unit_tests, run_unit_tests
from support.suites import run_suite

pytestmark = [pytest.mark.built, pytest.mark.timeout(1200)]


@pytest.mark.parametrize("room", ["ddl/tests/launch", "ddl-torch/tests", "ddl-ce-examples/tests"])
def test_the_room_s_tests_pass(prefix: Path, tmp_path: Path, room: str) -> None:
    run_suite(prefix, room, tmp_path, "-m", "not slow")


@pytest.mark.slow
def test_torch_on_one_and_on_four_ranks(prefix: Path, tmp_path: Path) -> None:
    run_suite(prefix, "ddl-torch/tests", tmp_path, "test_collectives.py", "-m", "slow")


@pytest.mark.parametrize("part", ["failures", "async", "storm", "sim"])
def test_real_ranks(prefix: Path, tmp_path: Path, part: str) -> None:
    run_suite(prefix, "ddl/tests/ranks", tmp_path, f"test_{part}.py", "-m", "not slow")


# The temporary folder is named after the test, and -k looks at names of folders, too.
def test_ranks_on_trees(prefix: Path, tmp_path: Path) -> None:
    chosen = ("-m", "not slow", "-k", "in_order or topology or mode or place")
    run_suite(prefix, "ddl/tests/ranks", tmp_path, "test_collectives.py", *chosen)


def test_the_library_s_unit_tests(prefix: Path, tmp_path: Path) -> None:
    """Kernels, plans, topology files: with the machine's compiler and the environment's MPI."""
    run_unit_tests(build_unit_tests(prefix, tmp_path / "build"))


@pytest.mark.slow
def test_collectives_on_pretended_hosts(prefix: Path, tmp_path: Path) -> None:
    run_suite(prefix, "ddl/tests/ranks", tmp_path, "test_collectives.py")
