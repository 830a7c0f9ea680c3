"""Builds the library ddl and its C++ unit tests with the machine's compiler."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

from ddlce.settings import load_settings
from support.run import ok, run

ROOM = Path(__file__).parents[2] / "recipes" / "ddl"


def build_libddl(prefix: Path, folder: Path, *options: str, flags: Iterable[str] = ()) -> Path:
    """The folder with libddl.so.1.

    Args:
        prefix: the environment whose MPI and libraries to use.
        folder: where to build; what was compiled before comes from the cache.
        options: for CMake; `-DDDL_TESTS=ON` for the unit tests.
    """
    # The tests' sources are beside the library's, as CMakeLists.txt expects them.
    for part in ("src", "tests"):
        shutil.copytree(ROOM / part, folder / part)
    build = folder / "build"
    # __FILE__ must not name the copy, or nothing in the cache would fit.
    flags = (*flags, f"-fmacro-prefix-map={folder}=.")
    configure = [
        *("cmake", "-S", str(folder / "src"), "-B", str(build), "-G", "Ninja"),
        *("-DDDL_PYTHON=OFF", "-DDDL_WERROR=ON", f"-DCMAKE_BUILD_RPATH={prefix}/lib"),
        *("-DCMAKE_UNITY_BUILD=ON", "-DCMAKE_UNITY_BUILD_BATCH_SIZE=6"),  # a third less
        *(f"-DMPI_C_COMPILER={prefix}/bin/mpicc", f"-DCMAKE_PREFIX_PATH={prefix}"),
        *(["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []),
        f"-DCMAKE_CXX_FLAGS={' '.join(flags)}",
        *options,
    ]
    environment = {
        **os.environ,
        "MPICH_CC": "gcc",
        "CCACHE_DIR": str(load_settings().cache / "ccache"),
        "CCACHE_MAXSIZE": "1G",
        # Paths count from the copy, not from the clone that it was made of.
        "CCACHE_BASEDIR": str(folder),
        "CCACHE_NOHASHDIR": "1",
    }
    for command in (configure, ["cmake", "--build", str(build), "-j2"]):
        ok(run(command, env=environment))
    return build


def build_unit_tests(prefix: Path, folder: Path, *flags: str) -> Path:
    """As build_libddl, with the unit tests; `flags` for the compiler."""
    if not Path("/usr/include/gtest/gtest.h").exists():
        pytest.skip("GoogleTest is not installed (apt-get install libgtest-dev)")
    return build_libddl(prefix, folder, "-DDDL_TESTS=ON", flags=flags)


def run_unit_tests(build: Path, **variables: str) -> None:
    """Run what build_unit_tests has built; `variables` for its environment."""
    ok(run([build / "tests" / "ddl_unit_tests"], env={**os.environ, **variables}))
