"""The CUDA variant of ddl on a machine without a GPU: compiled, linked, loaded, and on host memory.

Against the pinned wheels of CUDA and NCCL, with the machine's compiler and the environment's MPI.
The tests that need a GPU are in recipes/ddl/tests/gpu.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ddlce.smoke import clean_environment
from support.run import ok
from support.run import run as run_program
from support.suites import run_suite

pytestmark = [pytest.mark.built, pytest.mark.timeout(1200)]

FOLDER = Path(__file__).parents[2] / "recipes" / "ddl"

LIBRARY = """
import ctypes
library = ctypes.CDLL("libddl.so.1")
library.ddl_cuda_library.restype = library.ddl_last_error.restype = ctypes.c_char_p
print(library.ddl_cuda_library().decode())
print(library.ddl_set_stream(None), library.ddl_last_error().decode())
"""


@pytest.fixture(scope="module")
def environment(prefix: Path, cuda_variant: Path) -> dict[str, str]:
    """Variables with which the environment's programs use the CUDA variant of libddl."""
    # The name of the library is the same: what is loaded first serves all.
    return clean_environment(prefix, os.environ) | {"LD_PRELOAD": str(cuda_variant / "libddl.so.1")}


def run(environment: dict[str, str], *command: object) -> str:
    done = ok(run_program([str(word) for word in command], env=environment))
    return done.stdout


def test_a_gpu_is_asked_for_where_there_is_none(prefix: Path, environment: dict[str, str]) -> None:
    without = environment | {"CUDA_VISIBLE_DEVICES": ""}
    version, answer = run(without, prefix / "bin" / "python", "-c", LIBRARY).splitlines()
    assert version == "CUDA 12.9, NCCL 2.32.3"
    assert answer.startswith("2 ddl_set_stream: no CUDA device here: ")
    assert "use host memory" in answer


def test_the_cpu_variant_says_what_it_is(prefix: Path) -> None:
    environment = clean_environment(prefix, os.environ)
    version, answer = run(environment, prefix / "bin" / "python", "-c", LIBRARY).split("\n")[:2]
    assert version == ""
    assert answer == (
        "2 ddl_set_stream: this libddl was built without CUDA; install the CUDA variant of the "
        "package ddl"
    )


@pytest.mark.parametrize("hosts", [0, 2])
@pytest.mark.parametrize("program", [["reductions.py", "exact"], ["movement.py"], ["overlap.py"]])
def test_host_memory(
    prefix: Path, environment: dict[str, str], program: list[str], hosts: int
) -> None:
    programs = FOLDER / "tests" / "ranks" / "programs"
    small = environment | {"DDL_SHM_CHUNK": "1024", "PYTHONDONTWRITEBYTECODE": "1"}
    if hosts:
        small["DDL_FAKE_HOSTS"] = str(hosts)
    words = [prefix / "bin" / "python", programs / program[0], *program[1:]]
    run(small, prefix / "bin" / "mpiexec", "-n", 2, *words)


def test_the_tests_on_gpus_are_ready(prefix: Path, tmp_path: Path) -> None:
    """They run, or each says why not."""
    assert " skipped" in run_suite(prefix, "ddl/tests/gpu", tmp_path)
