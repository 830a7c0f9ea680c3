"""Builds the library ddl and its C++ unit tests with the machine's compiler."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "recipes" / "ddl" / "src"


def build_libddl(prefix: Path, folder: Path, *options: str) -> Path:
    """The folder with libddl.so.1.

    Args:
        prefix: the environment whose MPI and libraries to use.
        folder: where to build.
        options: for CMake; `-DDDL_TESTS=ON` for the unit tests.
    """
    configure = [
        *("cmake", "-S", SOURCES, "-B", folder, "-G", "Ninja"),
        *("-DDDL_PYTHON=OFF", "-DDDL_WERROR=ON", f"-DCMAKE_BUILD_RPATH={prefix}/lib"),
        *("-DCMAKE_UNITY_BUILD=ON", "-DCMAKE_UNITY_BUILD_BATCH_SIZE=6"),  # a third less
        *(f"-DMPI_C_COMPILER={prefix}/bin/mpicc", f"-DCMAKE_PREFIX_PATH={prefix}"),
        *options,
    ]
    environment = {**os.environ, "MPICH_CC": "gcc"}
    for command in (configure, ["cmake", "--build", folder, "-j2"]):
        made = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert made.returncode == 0, made.stdout[-4000:] + made.stderr
    return folder


def build_unit_tests(prefix: Path, folder: Path, *flags: str) -> Path:
    """As build_libddl, with the unit tests; `flags` for the compiler."""
    if not Path("/usr/include/gtest/gtest.h").exists():
        pytest.skip("GoogleTest is not installed (apt-get install libgtest-dev)")
    return build_libddl(prefix, folder, "-DDDL_TESTS=ON", f"-DCMAKE_CXX_FLAGS={' '.join(flags)}")


def run_unit_tests(build: Path, **variables: str) -> None:
    """Run what build_unit_tests has built; `variables` for its environment."""
    done = subprocess.run(
        [build / "tests" / "ddl_unit_tests"],
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr
