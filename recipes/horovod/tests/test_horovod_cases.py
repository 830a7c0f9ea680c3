"""horovod.torch, .tensorflow and .keras on real ranks: one job for each framework and number."""

from __future__ import annotations

from collections.abc import Callable
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
# Each framework's own API, in the first mode; operations are run in all modes.
OWN = {
    "torch": [
        "cases_horovod_torch",
        "cases_horovod_broadcast_torch",
        "cases_horovod_surface_torch",
        "cases_horovod_optimizer",
        "cases_horovod_training",
    ],
    "tensorflow": [
        "cases_horovod_tensorflow",
        "cases_horovod_keras",
        "cases_horovod_surface_keras",
        "cases_horovod_callbacks_keras",
    ],
}
MODES = {"torch": ["torch"], "tensorflow": ["eager", "graph"]}
CASES = [
    (framework, f"{mode}.{name}")
    for framework, modes in MODES.items()
    for modules, these in ((OPERATIONS, modes), (OWN[framework], modes[:1]))
    for mode in these
    for module in modules
    for name in names(module)
]
RANKS = [
    pytest.param(1, marks=pytest.mark.slow),
    2,
    pytest.param(4, marks=pytest.mark.slow),
]
# What Horovod may be told by its environment and must compute the same with.
KNOBS = {
    "no fusion": ("torch", {"HOROVOD_FUSION_THRESHOLD": "0"}),
    "no cache": ("torch", {"HOROVOD_CACHE_CAPACITY": "0"}),
    "small fusion, quick cycles": (
        "torch",
        {"HOROVOD_FUSION_THRESHOLD": "4096", "HOROVOD_CYCLE_TIME": "0.1"},
    ),
    "slow cycles, no group fusion": (
        "torch",
        {"HOROVOD_CYCLE_TIME": "20", "HOROVOD_DISABLE_GROUP_FUSION": "1"},
    ),
    "no fusion, no cache": (
        "tensorflow",
        {"HOROVOD_FUSION_THRESHOLD": "0", "HOROVOD_CACHE_CAPACITY": "0"},
    ),
}
KNOB_CASES = {
    "torch": [
        "torch.allreduce_beyond_the_fusion_threshold",
        "torch.allreduce_again_and_again_by_one_name",
        "torch.grouped_allreduce",
        "torch.allgather_of_other_numbers_of_rows",
        "torch.broadcast_of_much_and_of_nothing",
        "torch.allreduce_of_other_shapes",
        "torch.batches_by_one_name",
        "torch.many_handles_at_once",
        "torch.trains_as_one_process_does",
        "torch.grouped_gradients",
    ],
    "tensorflow": [
        "graph.grouped_allreduce",
        "graph.allgather_of_other_numbers_of_rows",
        "graph.batches_by_one_name",
        "eager.many_operations_of_one_graph",
        "eager.distributed_tape",
        "eager.fit_eagerly",
    ],
}

OutcomeOf = Callable[[str, int], Outcome]


@pytest.fixture(scope="module")
def outcome(run_cases: RunCases) -> OutcomeOf:
    @cache
    def run(framework: str, ranks: int) -> Outcome:
        return run_cases(ranks, framework, *OPERATIONS, *OWN[framework])

    return run


def test_there_are_cases() -> None:
    assert len(CASES) > 260
    assert len(set(CASES)) == len(CASES)
    for framework, chosen in KNOB_CASES.items():
        assert {(framework, name) for name in chosen} <= set(CASES)


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize(("framework", "name"), CASES)
def test_case(outcome: OutcomeOf, framework: str, name: str, ranks: int) -> None:
    check(outcome(framework, ranks), name, ranks)


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("framework", MODES)
def test_the_run_ends_well(outcome: OutcomeOf, framework: str, ranks: int) -> None:
    result, _ = outcome(framework, ranks)
    assert result.returncode == 0, result.stderr[-4000:]


@pytest.mark.parametrize("knobs", KNOBS)
def test_with_other_settings(run_cases: RunCases, knobs: str) -> None:
    framework, env = KNOBS[knobs]
    chosen = KNOB_CASES[framework]
    only = {"HVD_ONLY": ",".join(name.split(".")[1] for name in chosen)}
    done = run_cases(2, framework, *OPERATIONS, *OWN[framework], env=env | only)
    for name in chosen:
        check(done, name, 2)
    assert done[0].returncode == 0, done[0].stderr[-4000:]
