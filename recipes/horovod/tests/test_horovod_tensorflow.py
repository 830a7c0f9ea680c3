"""horovod.tensorflow and horovod.keras on real ranks: the cases, one job for each number."""

from __future__ import annotations

from functools import cache

import pytest

from conftest import Outcome, RunCases, check, names

OPERATIONS = [
    "cases_horovod_reduce",
    "cases_horovod_move",
    "cases_horovod_gradients",
    "cases_horovod_sets",
    "cases_horovod_errors",
    "cases_horovod_join",
]
OWN = ["cases_horovod_tensorflow", "cases_horovod_keras", "cases_horovod_callbacks_keras"]
MODULES = [*OPERATIONS, *OWN]
# Operations run eagerly and in a tf.function; the API's own cases choose for themselves.
CASES = [
    *(f"{mode}.{name}" for mode in ("eager", "graph") for m in OPERATIONS for name in names(m)),
    *(f"eager.{name}" for module in OWN for name in names(module)),
]
RANKS = [
    pytest.param(1, marks=pytest.mark.slow),
    2,
    pytest.param(4, marks=pytest.mark.slow),
]
# What Horovod may be told by its environment and must compute the same with.
KNOBS = {
    "no fusion, no cache": {"HOROVOD_FUSION_THRESHOLD": "0", "HOROVOD_CACHE_CAPACITY": "0"},
}
KNOB_CASES = [
    "graph.grouped_allreduce",
    "graph.allgather_of_other_numbers_of_rows",
    "graph.batches_by_one_name",
    "eager.many_operations_of_one_graph",
    "eager.distributed_tape",
    "eager.fit_eagerly",
]


@pytest.fixture(scope="module")
def outcome(run_cases: RunCases) -> object:
    @cache
    def run(ranks: int) -> Outcome:
        return run_cases(ranks, "tensorflow", *MODULES)

    return run


def test_there_are_cases() -> None:
    assert len(CASES) > 160
    assert len(set(CASES)) == len(CASES)
    assert set(KNOB_CASES) <= set(CASES)


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
    only = {"HVD_ONLY": ",".join(name.split(".")[1] for name in KNOB_CASES)}
    done = run_cases(2, "tensorflow", *MODULES, env=KNOBS[knobs] | only)
    for name in KNOB_CASES:
        check(done, name, 2)
    assert done[0].returncode == 0, done[0].stderr[-4000:]
