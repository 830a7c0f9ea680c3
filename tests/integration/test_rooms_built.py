"""The tests that stand in the recipes' rooms, on the packages of the built environment.

Real ranks, real launches, and everything that must fail: other shapes on other ranks, a killed, a
hanging and a failing rank, hosts that cannot be reached.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from ddlce.env.layout import Layout
from ddlce.settings import load_settings
from support.suites import run_suite

pytestmark = [pytest.mark.built, pytest.mark.timeout(1200)]

ROOM = Path(__file__).parents[2] / "recipes" / "ddl"


@pytest.fixture(scope="module")
def prefix() -> Path:
    """The default release of ddl-ce."""
    current = Layout(load_settings().root).current("ddl-ce")
    assert current, "there is no built environment: run `make` first"
    return current


@pytest.mark.parametrize("room", ["ddl/tests/launch", "ddl-torch/tests"])
def test_the_room_s_tests_pass(prefix: Path, tmp_path: Path, room: str) -> None:
    run_suite(prefix, room, tmp_path)


@pytest.mark.parametrize("part", ["failures", "async", "storm", "sim"])
def test_real_ranks(prefix: Path, tmp_path: Path, part: str) -> None:
    run_suite(prefix, "ddl/tests/ranks", tmp_path, f"test_{part}.py", "-m", "not slow")


# The temporary folder is named after the test, and -k looks at names of folders, too.
def test_ranks_on_trees(prefix: Path, tmp_path: Path) -> None:
    chosen = ("-m", "not slow", "-k", "in_order or topology or mode")
    run_suite(prefix, "ddl/tests/ranks", tmp_path, "test_collectives.py", *chosen)


def test_the_library_s_unit_tests(prefix: Path, tmp_path: Path) -> None:
    """Kernels, plans, topology files: with the machine's compiler and the environment's MPI."""
    if not Path("/usr/include/gtest/gtest.h").exists():
        pytest.skip("GoogleTest is not installed (apt-get install libgtest-dev)")
    configure = [
        *("cmake", "-S", ROOM / "src", "-B", tmp_path / "build", "-G", "Ninja"),
        *("-DDDL_TESTS=ON", "-DDDL_PYTHON=OFF", "-DDDL_WERROR=ON"),
        *(f"-DMPI_C_COMPILER={prefix}/bin/mpicc", f"-DCMAKE_PREFIX_PATH={prefix}"),
        f"-DCMAKE_BUILD_RPATH={prefix}/lib",
    ]
    environment = {**os.environ, "MPICH_CC": "gcc"}
    for command in (configure, ["cmake", "--build", tmp_path / "build", "-j2"]):
        made = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert made.returncode == 0, made.stdout[-4000:] + made.stderr
    done = subprocess.run(
        [tmp_path / "build" / "tests" / "ddl_unit_tests"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr


@pytest.mark.slow
def test_collectives_on_pretended_hosts(prefix: Path, tmp_path: Path) -> None:
    run_suite(prefix, "ddl/tests/ranks", tmp_path, "test_collectives.py")
