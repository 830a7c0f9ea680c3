"""Keras's own distribution on JAX: the same numbers on 1, 2 and 4 ranks."""

from collections.abc import Callable
from functools import cache

import pytest
from rank_cases import Run

pytest.importorskip("keras")
NormsOn = Callable[[str, int], list[float]]


@pytest.fixture(scope="module")
def norms_on(ddlrun: Run) -> NormsOn:
    @cache
    def run(kind: str, ranks: int) -> list[float]:
        result = ddlrun(ranks, "keras_meshes.py", kind, env={"KERAS_BACKEND": "jax"})
        assert result.returncode == 0, result.stderr[-4000:]
        if ranks > 1:
            assert result.stdout.count("by ddl True") == ranks, result.stdout
        line = next(line for line in result.stdout.splitlines() if "norms" in line)
        return [float(word) for word in line.split("norms")[1].split()]

    return run


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["data", "model"])
def test_the_numbers_of_one_rank(norms_on: NormsOn, kind: str, ranks: int) -> None:
    assert norms_on(kind, ranks) == pytest.approx(norms_on(kind, 1), rel=1e-4)
