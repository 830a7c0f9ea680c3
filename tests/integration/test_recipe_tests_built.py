"""The tests that stand in the recipes' folders, on the packages of the built environment.

Real ranks, real launches, and everything that must fail: other shapes on other ranks, a killed, a
hanging and a failing rank, hosts that cannot be reached.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from support.libddl import build_unit_tests, run_unit_tests
from support.suites import run_suite
from support.sweeps import SWEEPS, without_sweeps

pytestmark = [pytest.mark.built, pytest.mark.timeout(1200)]


#: The folder of the tests that start ranks of libddl.
RANKS = "ddl/tests/ranks"

#: Its files by the middle of their names, all but one that has runs of its own below.
OF_RANKS = sorted(
    path.stem.removeprefix("test_")
    for path in (Path(__file__).parents[2] / "recipes" / RANKS).glob("test_*.py")
    if path.stem != "test_collectives"
)

#: The tests of each recipe that `make test` runs, but for long sweeps; `make test-full` runs all.
#: A package's own test has run some when it was built: the cases of ddl-torch and ddl-tensorflow,
#: and horovodrun's list of what it was built with, are not here.
CHOSEN = {
    "ddl/tests/launch": "",
    "ddl-torch/tests": "test_life and (dies or exception or timeouts or side_by_side)",
    "ddl-tensorflow/tests": "killed_ends_the_job or leaves_by_sys_exit or test_backends",
    "lms-tensorflow/tests": "test_plan or impossible_limit",
    "horovod/tests": "(test_case and torch) or (fails and torch and dies) or test_horovod_keras",
    "lms-torch/tests": "(test_recompute_changes or not test_recompute) and not test_compiled"
    " and not random_models and (not test_parameters or state_dict or accumulation) and not gloo",
    "ddl-ce-examples/tests": "test_cnn_benchmark and not every_way and not every_network",
    "private-caches/tests": "not own_choice and not older_kerases",
}


@pytest.mark.timeout(1500)  # beside a build, they take three times as long
@pytest.mark.parametrize("folder", CHOSEN)
def test_the_recipe_s_tests_pass(prefix: Path, tmp_path: Path, folder: str) -> None:
    # On a simulated device, threads that wait for one another spin: five times as long beside
    # other tests. Not elsewhere: how many threads a rank gets is what some of them ask.
    variables = {"OMP_NUM_THREADS": "1"} if folder.startswith("lms-torch/") else {}
    # The same random programs each time: a search for new ones is for `make test-full`.
    same = ["--hypothesis-seed=0"] if folder.startswith("lms-torch/") else []
    chosen = ("-m", "not slow", "-k", CHOSEN[folder], *without_sweeps(folder), *same)
    run_suite(prefix, folder, tmp_path, *chosen, variables=variables)


#: The files with tests in which a launcher starts its ranks again, 20 times; 200 times: slow.
RESTARTS = {"ddl-torch/tests": "test_restarts.py", "horovod/tests": "test_horovod_runner.py"}


@pytest.mark.timeout(1500)
@pytest.mark.parametrize("folder", RESTARTS)
def test_restarts(prefix: Path, tmp_path: Path, folder: str) -> None:
    run_suite(prefix, folder, tmp_path, RESTARTS[folder], "-m", "not slow", "-k", "ranks_again")


@pytest.mark.slow
@pytest.mark.timeout(3 * 3600)
@pytest.mark.parametrize("folder", RESTARTS)
def test_many_restarts(prefix: Path, tmp_path: Path, folder: str) -> None:
    run_suite(prefix, folder, tmp_path, RESTARTS[folder], "-m", "slow", "-k", "ranks_again")


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "folder",
    ["ddl-torch", "ddl-tensorflow", "horovod", "ddl-ce-examples", "lms-tensorflow", "lms-torch"],
)
def test_the_recipe_s_long_tests_pass(prefix: Path, tmp_path: Path, folder: str) -> None:
    """Among them: the same cases on one and on four ranks."""
    run_suite(prefix, f"{folder}/tests", tmp_path, "-k", "not ranks_again")


@pytest.mark.parametrize("part", OF_RANKS)
def test_real_ranks(prefix: Path, tmp_path: Path, part: str) -> None:
    chosen = ("-m", "not slow", *without_sweeps(RANKS))
    run_suite(prefix, RANKS, tmp_path, f"test_{part}.py", *chosen)


# The temporary folder is named after the test, and -k looks at names of folders, too.
def test_ranks_on_trees(prefix: Path, tmp_path: Path) -> None:
    kinds = "in_order or topology or mode or place or socket"
    chosen = ("-m", "not slow", "-k", kinds, *without_sweeps(RANKS))
    run_suite(prefix, RANKS, tmp_path, "test_collectives.py", *chosen)


def test_the_library_s_unit_tests(prefix: Path, tmp_path: Path) -> None:
    """Kernels, plans, topology files: with the machine's compiler and the environment's MPI."""
    run_unit_tests(build_unit_tests(prefix, tmp_path / "build"))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("file", ["test_storm.py", "test_failures.py"])
def test_many_faults(prefix: Path, tmp_path: Path, file: str) -> None:
    """What is slow among them; test_collectives.py is below."""
    run_suite(prefix, RANKS, tmp_path, file, "-m", "slow")


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_long_sweeps_of_real_ranks(prefix: Path, tmp_path: Path) -> None:
    """Those of the other recipes are in test_the_recipe_s_long_tests_pass."""
    run_suite(prefix, RANKS, tmp_path, *SWEEPS[RANKS])


@pytest.mark.slow
def test_collectives_on_pretended_hosts(prefix: Path, tmp_path: Path) -> None:
    run_suite(prefix, RANKS, tmp_path, "test_collectives.py")
