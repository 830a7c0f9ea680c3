"""A table of cases on each of Keras's backends, on 2 and on 4 ranks.

A test file says `TABLE`, the program beside it that runs its cases and writes the names of those
that rank r has passed to the file r of a folder, and `ENV`, what else that program needs. It
imports the tests that stand here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

import pytest
from rank_cases import Result, Run

BACKENDS = ["tensorflow", "torch", "jax"]
RANKS = [2, pytest.param(4, marks=pytest.mark.slow)]
Outcome = Callable[[str, int], tuple[Result, list[set[str]]]]

_CASE = re.compile(r"^@case\ndef (\w+)", re.M)


def has(backend: str) -> None:
    """Skip the test where Keras cannot average on this backend."""
    pytest.importorskip("ddl_jax" if backend == "jax" else backend)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "name" in metafunc.fixturenames:
        table = metafunc.definition.path.parent / metafunc.module.TABLE
        metafunc.parametrize("name", _CASE.findall(table.read_text()))


@pytest.fixture(scope="module")
def outcome(
    request: pytest.FixtureRequest, ddlrun: Run, tmp_path_factory: pytest.TempPathFactory
) -> Outcome:
    """One run per backend and number of ranks, for all cases."""

    @cache
    def run(backend: str, ranks: int) -> tuple[Result, list[set[str]]]:
        folder = tmp_path_factory.mktemp(f"{backend}{ranks}")
        env = {"KERAS_BACKEND": backend} | request.module.ENV
        result = ddlrun(ranks, request.module.TABLE, str(folder), env=env)
        files = [folder / str(rank) for rank in range(ranks)]
        return result, [set(f.read_text().split() if f.exists() else ()) for f in files]

    return run


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_case(outcome: Outcome, backend: str, name: str, ranks: int) -> None:
    has(backend)
    result, passed = outcome(backend, ranks)
    missing = [rank for rank in range(ranks) if name not in passed[rank]]
    assert not missing, f"not passed on ranks {missing}; {result.stderr[-4000:]}"


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_the_run_ends_well(outcome: Outcome, backend: str, ranks: int) -> None:
    has(backend)
    result, _ = outcome(backend, ranks)
    assert result.returncode == 0, result.stderr[-4000:]
