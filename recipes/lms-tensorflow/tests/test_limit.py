"""The limit holds in whatever order TensorFlow runs what is ready."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from executor import Executor
from lms_tensorflow.engine import Engine
from models import BATCH, attention, convolutions, fit, lms, needed
from tensorflow.core.framework import graph_pb2
from test_random_models import made

MODELS = {"convolutions": convolutions, "attention": attention}
MODELS |= {f"made by chance, {seed}": lambda seed=seed: made(seed) for seed in range(2)}


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bytes, bytes]]:
    """The graphs that came, and what became of them."""
    found = []
    optimize = Engine.optimize

    def spied(self: Engine, given: bytes, round_: int) -> bytes | None:
        answer = optimize(self, given, round_)
        if answer is not None:
            found.append((given, answer))
        return answer

    monkeypatch.setattr(Engine, "optimize", spied)
    return found


def peaks(graph: bytes, plan: Any, swapped: bool) -> Iterator[int]:
    if not swapped:
        plan.swaps = []
    executor = Executor(graph_pb2.GraphDef.FromString(graph), plan)
    return (executor.peak(seed) for seed in range(12 if swapped else 400))


@pytest.mark.parametrize("name", MODELS)
def test_no_order_passes_it(name: str, seen: list[tuple[bytes, bytes]]) -> None:
    for share in (1.0, 0.85):
        limit = int(needed(MODELS[name]) * share)
        seen.clear()
        callback = lms(limit=limit, min_bytes=1024, batch_size=BATCH)
        fit(MODELS[name], callback, epochs=1)
        plan = max(callback.plans, key=lambda one: one.peak_before)
        given, answer = max(seen, key=lambda pair: len(pair[1]))
        assert plan.order is not None
        assert max(peaks(answer, plan, swapped=True)) <= plan.peak_after <= plan.limit
    free = peaks(given, plan, swapped=False)
    assert any(peak > plan.limit for peak in free)  # so it is not for nothing
