"""horovod.torch on real ranks: the cases of the modules below, one job for each number of ranks."""

from __future__ import annotations

from functools import cache

import pytest

from conftest import Outcome, RunCases, check, names

MODULES = [
    "cases_horovod_reduce",
    "cases_horovod_move",
    "cases_horovod_gradients",
    "cases_horovod_sets",
    "cases_horovod_errors",
    "cases_horovod_join",
    "cases_horovod_torch",
    "cases_horovod_optimizer",
    "cases_horovod_training",
]
CASES = [f"torch.{name}" for module in MODULES for name in names(module)]
RANKS = [
    pytest.param(1, marks=pytest.mark.slow),
    2,
    pytest.param(4, marks=pytest.mark.slow),
]
# What Horovod may be told by its environment and must compute the same with.
KNOBS = {
    "no fusion": {"HOROVOD_FUSION_THRESHOLD": "0"},
    "no cache": {"HOROVOD_CACHE_CAPACITY": "0"},
    "small fusion, quick cycles": {
        "HOROVOD_FUSION_THRESHOLD": "4096",
        "HOROVOD_CYCLE_TIME": "0.1",
    },
    "slow cycles, no group fusion": {
        "HOROVOD_CYCLE_TIME": "20",
        "HOROVOD_DISABLE_GROUP_FUSION": "1",
    },
}
KNOB_CASES = [
    "allreduce_beyond_the_fusion_threshold",
    "allreduce_again_and_again_by_one_name",
    "grouped_allreduce",
    "allgather_of_other_numbers_of_rows",
    "broadcast_of_much_and_of_nothing",
    "allreduce_of_other_shapes",
    "batches_by_one_name",
    "many_handles_at_once",
    "trains_as_one_process_does",
    "grouped_gradients",
]


@pytest.fixture(scope="module")
def outcome(run_cases: RunCases) -> object:
    @cache
    def run(ranks: int) -> Outcome:
        return run_cases(ranks, "torch", *MODULES)

    return run


def test_there_are_cases() -> None:
    assert len(CASES) > 90
    assert len(set(CASES)) == len(CASES)
    assert {f"torch.{name}" for name in KNOB_CASES} <= set(CASES)


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("name", CASES)
def test_case(outcome: object, name: str, ranks: int) -> None:
    check(outcome(ranks), name, ranks)


@pytest.mark.parametrize("ranks", RANKS)
def test_the_run_ends_well(outcome: object, ranks: int) -> None:
    result, _ = outcome(ranks)
    assert result.returncode == 0, result.stderr[-4000:]


@pytest.mark.parametrize("knobs", KNOBS)
def test_with_other_settings(run_cases: RunCases, knobs: str) -> None:
    only = {"HVD_ONLY": ",".join(KNOB_CASES)}
    done = run_cases(2, "torch", *MODULES, env=KNOBS[knobs] | only)
    for name in KNOB_CASES:
        check(done, f"torch.{name}", 2)
    assert done[0].returncode == 0, done[0].stderr[-4000:]
