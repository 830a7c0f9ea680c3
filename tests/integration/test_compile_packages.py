"""Source packages that pip compiles in an overlay, on a node with neither /usr nor a compiler."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.bareroot import alone
from support.pip import digest_of
from support.tools import once, pip

pytestmark = [pytest.mark.built, pytest.mark.timeout(1200)]

REQUIREMENTS = Path(__file__).parents[1] / "support" / "source-packages.txt"

#: Each a package of a user's: its files, and what prints its answer.
PACKAGES = {
    "cython": (
        {
            "pyproject.toml": '[build-system]\nrequires = ["setuptools", "cython"]\n'
            'build-backend = "setuptools.build_meta"\n',
            "setup.py": "from setuptools import setup\nfrom Cython.Build import cythonize\n"
            'setup(name="mine", version="1", ext_modules=cythonize("mine.pyx"))\n',
            "mine.pyx": "def answer():\n    cdef int i, total = 0\n"
            "    for i in range(7):\n        total += 2 * i\n    return total\n",
        },
        "print(mine.answer())",
    ),
    "pybind11 by CMake": (
        {
            "pyproject.toml": '[build-system]\nrequires = ["scikit-build-core", "pybind11", '
            '"cmake", "ninja"]\nbuild-backend = "scikit_build_core.build"\n'
            '[project]\nname = "mine"\nversion = "1"\n',
            "CMakeLists.txt": "cmake_minimum_required(VERSION 3.20)\n"
            "project(mine LANGUAGES CXX)\nset(PYBIND11_FINDPYTHON ON)\n"
            "find_package(pybind11 CONFIG REQUIRED)\n"
            "pybind11_add_module(mine mine.cc)\ninstall(TARGETS mine DESTINATION .)\n",
            "mine.cc": "#include <pybind11/pybind11.h>\n#include <vector>\n"
            'PYBIND11_MODULE(mine, m) { m.def("answer", '
            "[] { return std::vector<int>(42).size(); }); }\n",
        },
        "print(mine.answer())",
    ),
}

IMPORTED = "import pyximport; pyximport.install(); import mine; print(mine.answer())"

RANK = "from mpi4py import MPI; print(MPI.COMM_WORLD.allreduce(21), MPI.__file__)"


@pytest.fixture(scope="module")
def wheels() -> Path:
    """Build backends, and mpi4py's source; or skip with the reason. They are downloaded once."""

    def make(folder: Path) -> None:
        words = ("--require-hashes", "--no-deps", "--no-binary", "mpi4py", "--dest", folder)
        pip(sys.executable, "download", *words, "-r", REQUIREMENTS)

    return once(f"source-packages-{digest_of(REQUIREMENTS.read_bytes())}", make)


def in_overlay(
    prefix: Path, folder: Path, wheels: Path, command: str
) -> subprocess.CompletedProcess[str]:
    """Run a command beside an overlay `mine`, whose pip knows these wheels alone."""
    for path in wheels.iterdir():
        shutil.copy(path, folder)
    words = f"set -e; ddlce env overlay ./overlay >&2; {command}"
    variables = {
        "PATH": f"{prefix}/bin:/bin",
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(folder),
        "PIP_QUIET": "1",
    }
    return alone(prefix, folder, "/bin/sh", "-c", words, shell=True, wheels=True, **variables)


@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_of_a_user(prefix: Path, tmp_path: Path, wheels: Path, name: str) -> None:
    files, words = PACKAGES[name]
    (tmp_path / "source").mkdir()
    for file, text in files.items():
        (tmp_path / "source" / file).write_text(text)
    command = f"overlay/bin/pip install ./source; overlay/bin/python -c 'import mine; {words}'"
    done = in_overlay(prefix, tmp_path, wheels, command)
    assert done.stdout.splitlines()[-1:] == ["42"], done.stderr + done.stdout


def test_cython_compiles_what_is_imported(prefix: Path, tmp_path: Path, wheels: Path) -> None:
    (tmp_path / "mine.pyx").write_text(PACKAGES["cython"][0]["mine.pyx"])
    command = f"overlay/bin/pip install cython; overlay/bin/python -c '{IMPORTED}'"
    done = in_overlay(prefix, tmp_path, wheels, command)
    assert done.stdout.splitlines()[-1:] == ["42"], done.stderr + done.stdout


@pytest.mark.slow
def test_mpi4py_from_source(prefix: Path, tmp_path: Path, wheels: Path) -> None:
    """On the release's MPI."""
    command = (
        "overlay/bin/pip install --force-reinstall --no-deps --no-binary mpi4py mpi4py; "
        f'ddlrun -H localhost:2 overlay/bin/python -c "{RANK}"'
    )
    done = in_overlay(prefix, tmp_path, wheels, command)
    said = [line.rpartition("] ")[2] for line in done.stdout.splitlines()]
    assert len(said) == 2, done.stderr + done.stdout
    assert all(line.startswith(f"42 {tmp_path}/overlay/") for line in said)
