"""Whatever fails inside the library on one rank: no hang, no wrong number, and the rank's name."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from conftest import PROGRAMS, Launch

pytestmark = [
    pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++"),
    pytest.mark.skipif("TEST_MPIEXEC" in os.environ, reason="faults.cc has MPICH's types"),
]


@pytest.fixture(scope="module")
def faults(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The library of faults.cc."""
    made = tmp_path_factory.mktemp("faults") / "libfaults.so"
    source = PROGRAMS / "faults.cc"
    subprocess.run(
        ["g++", "-std=c++17", "-O1", "-shared", "-fPIC", "-o", str(made), str(source), "-ldl"],
        check=True,
    )
    return str(made)


@pytest.mark.parametrize(("n", "hosts"), [(2, 0), (3, 2), (4, 4)])
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_failure_in_the_middle_is_told_or_changes_nothing(
    passes: Launch, faults: str, n: int, hosts: int, seed: int
) -> None:
    result = passes("faults", str(seed), "60", n=n, hosts=hosts, env={"LD_PRELOAD": faults})
    assert result.stdout.count("ended well") == n
