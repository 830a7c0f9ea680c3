"""The arithmetic of bench_keras_backends: efficiencies, and the backends that fall short."""

from __future__ import annotations

import pytest

from bench.bench_keras_backends import checks, efficiency, share_of_cores
from bench.check import missed


def speeds(jax: float, torch: float) -> dict[tuple[str, int], float]:
    """Images per second on one and on two ranks, where DistributedDataParallel makes 180."""
    twice = {"jax": jax, "torch": torch, "ddp": 180.0}
    return {(way, 1): 100.0 for way in twice} | {(way, 2): speed for way, speed in twice.items()}


def test_the_efficiency_is_by_ranks_and_by_one_rank() -> None:
    assert efficiency(speeds(150, 180), "jax", 2) == pytest.approx(0.75)


def test_each_backend_that_falls_short_is_named() -> None:
    assert missed(checks(speeds(172, 200), 2)) == []
    assert missed(checks(speeds(90, 172), 2)) == [
        "Keras on jax, 2 ranks: 0.50 of the efficiency of DistributedDataParallel; at least 0.95"
    ]


def test_one_rank_has_the_cores_that_it_has_beside_others() -> None:
    cores = {0, 1, 4, 5, 6}
    assert share_of_cores(cores, 2, 2) == [0, 1, 4, 5]
    assert share_of_cores(cores, 1, 2) == [0, 1]
    with pytest.raises(ValueError, match="there are 5 cores for 8 ranks"):
        share_of_cores(cores, 1, 8)
