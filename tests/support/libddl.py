"""Builds the library ddl and its C++ unit tests with the machine's compiler."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "recipes" / "ddl" / "src"


def build_libddl(prefix: Path, folder: Path, *flags: str) -> Path:
    """The folder with libddl.so.1; the unit tests are tests/ddl_unit_tests in it.

    Args:
        prefix: the environment whose MPI and libraries to use.
        folder: where to build.
        flags: for the compiler, `-fsanitize=thread` for example.
    """
    if not Path("/usr/include/gtest/gtest.h").exists():
        pytest.skip("GoogleTest is not installed (apt-get install libgtest-dev)")
    configure = [
        *("cmake", "-S", SOURCES, "-B", folder, "-G", "Ninja"),
        *("-DDDL_TESTS=ON", "-DDDL_PYTHON=OFF", "-DDDL_WERROR=ON"),
        *("-DCMAKE_UNITY_BUILD=ON", "-DCMAKE_UNITY_BUILD_BATCH_SIZE=6"),  # a third less
        *(f"-DMPI_C_COMPILER={prefix}/bin/mpicc", f"-DCMAKE_PREFIX_PATH={prefix}"),
        *(f"-DCMAKE_CXX_FLAGS={' '.join(flags)}", f"-DCMAKE_BUILD_RPATH={prefix}/lib"),
    ]
    environment = {**os.environ, "MPICH_CC": "gcc"}
    for command in (configure, ["cmake", "--build", folder, "-j2"]):
        made = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert made.returncode == 0, made.stdout[-4000:] + made.stderr
    return folder


def run_unit_tests(build: Path, **variables: str) -> None:
    """Run the unit tests of a build; `variables` for their environment."""
    done = subprocess.run(
        [build / "tests" / "ddl_unit_tests"],
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr
