"""Horovod's Keras on each backend of Keras: the one table of hvd_backends.py, run on each."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

import pytest

from conftest import HERE, Result, Run

NAMES = re.findall(r"^@case\ndef (\w+)", (HERE / "hvd_backends.py").read_text(), re.M)
BACKENDS = ["tensorflow", "torch", "jax"]
RANKS = [2, pytest.param(4, marks=pytest.mark.slow)]
OutcomeOf = Callable[[str, int], tuple[Result, list[set[str]]]]


def has(backend: str) -> None:
    pytest.importorskip("ddl_jax" if backend == "jax" else backend)


@pytest.fixture(scope="module")
def outcome(ddlrun: Run, tmp_path_factory: pytest.TempPathFactory) -> OutcomeOf:
    @cache
    def run(backend: str, ranks: int) -> tuple[Result, list[set[str]]]:
        folder = tmp_path_factory.mktemp(f"{backend}{ranks}")
        env = {"KERAS_BACKEND": backend, "HOROVOD_DYNAMIC_PROCESS_SETS": "1"}
        result = ddlrun(ranks, "hvd_backends.py", str(folder), env=env)
        files = [folder / str(rank) for rank in range(ranks)]
        return result, [set(f.read_text().split() if f.exists() else ()) for f in files]

    return run


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", NAMES)
def test_case(outcome: OutcomeOf, backend: str, name: str, ranks: int) -> None:
    has(backend)
    result, passed = outcome(backend, ranks)
    missing = [rank for rank in range(ranks) if name not in passed[rank]]
    assert not missing, f"not passed on ranks {missing}; {result.stderr[-4000:]}"


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_the_run_ends_well(outcome: OutcomeOf, backend: str, ranks: int) -> None:
    has(backend)
    result, _ = outcome(backend, ranks)
    assert result.returncode == 0, result.stderr[-4000:]


def test_another_backend_is_refused_by_a_sentence(ddlrun: Run) -> None:
    result = ddlrun(1, code="import horovod.keras", env={"KERAS_BACKEND": "numpy"})
    assert result.returncode != 0
    assert "set KERAS_BACKEND to tensorflow, torch or jax" in result.stderr, result.stderr
