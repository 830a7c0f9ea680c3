"""Single operations that are computed again: the bits of in-core, sooner than by copies."""

from __future__ import annotations

from collections.abc import Callable

import lms
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lms.planning.recompute_operations import with_repeated
from lms.planning.trace import PackKey, Recomputation, Trace, TracedBlock
from models import SLOW_BUS, Run, Step, batch, equal, mlp_step, train
from test_random_models import LAYERS, Net
from torch import Tensor, nn
from torch.nn import functional

Make = Callable[[], tuple[nn.Module, Step]]


class Block(nn.Module):
    """A transformer's perceptron: norm, GELU, dropout and a connection across."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.drop = nn.LayerNorm(width), nn.Dropout(0.1)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """(rows, width) to the same."""
        return x + self.drop(self.down(functional.gelu(self.up(self.norm(x)))))


def perceptrons() -> tuple[nn.Module, Step]:
    torch.manual_seed(0)
    return stepping(nn.Sequential(*(Block(64) for _ in range(6))), batch())


def perceptrons_under_autocast() -> tuple[nn.Module, Step]:
    model, _ = perceptrons()
    data = batch()

    def step() -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(data).square().mean()
        loss.backward()
        return loss.detach()

    return model, step


def convolutions() -> tuple[nn.Module, Step]:
    torch.manual_seed(0)
    parts: list[nn.Module] = []
    for inside, outside in ((3, 8), (8, 8), (8, 8), (8, 8)):
        parts += [nn.Conv2d(inside, outside, 3, padding=1), nn.BatchNorm2d(outside), nn.ReLU(True)]
    data = torch.randn(8, 3, 24, 24, generator=torch.Generator().manual_seed(1))
    return stepping(nn.Sequential(*parts), data)


def stepping(model: nn.Module, data: Tensor) -> tuple[nn.Module, Step]:
    def step() -> Tensor:
        loss = model(data).square().mean()
        loss.backward()
        return loss.detach()

    return model, step


def run(make: Make, limit: int | None = None, again: bool = True) -> Run:
    """Trains where copies are slow; random numbers are drawn alike in each run."""
    device = lms.SimulatedDevice("64GiB", SLOW_BUS)
    model, step = make()
    torch.manual_seed(7)
    return train(model, step, limit=limit, steps=6, device=device, recompute_operations=again)


@pytest.mark.parametrize("make", [mlp_step, perceptrons, perceptrons_under_autocast, convolutions])
@pytest.mark.parametrize("share", [0.8, 0.6])
def test_the_same_bits_within_the_limit_sooner_than_by_copies(make: Make, share: float) -> None:
    plain = run(make)
    limit = int(share * max(plain.peaks))
    copied, again = run(make, limit, again=False), run(make, limit)
    assert equal(plain, copied)
    assert equal(plain, again)
    assert max(again.peaks) <= limit
    assert again.seconds[-1] < 0.9 * copied.seconds[-1]
    assert again.report is not None
    assert again.report.operations > 0
    assert "storages by single operations" in str(again.report)
    assert again.report.predicted == pytest.approx(again.report.measured, rel=0.02)
    assert again.report.missed == 0


def test_buffers_and_random_numbers_are_as_after_training_in_core() -> None:
    found: list[tuple[list[Tensor], Tensor, int]] = []
    for limit in (None, 0.7):
        device = lms.SimulatedDevice("64GiB", SLOW_BUS)
        model, step = convolutions()
        model.append(nn.Dropout(0.5))
        torch.manual_seed(7)
        most = None if limit is None else int(limit * found[0][2])
        done = train(model, step, limit=most, steps=6, device=device, recompute_operations=True)
        assert limit is None or (done.report is not None and done.report.operations)
        found.append((list(model.buffers()), torch.rand(3), max(done.peaks)))
    assert all(map(torch.equal, found[0][0], found[1][0]))
    assert torch.equal(found[0][1], found[1][1])


def test_a_custom_operator_is_never_run_twice() -> None:
    runs = 0

    @torch.library.custom_op("lms_tests::twice", mutates_args=())
    def twice(x: Tensor) -> Tensor:
        nonlocal runs
        runs += 1
        return x * 2

    twice.register_autograd(lambda _, gradient: gradient * 2)

    def make() -> tuple[nn.Module, Step]:
        model, data = nn.Sequential(*(Block(64) for _ in range(4))), batch()

        def step() -> Tensor:
            x = data
            for part in model:
                x = twice(part(x)).tanh()
            loss = x.square().mean()
            loss.backward()
            return loss.detach()

        return model, step

    limit = int(0.6 * max(run(make).peaks))
    runs = 0
    done = run(make, limit)
    assert done.report is not None
    assert done.report.operations > 0
    assert runs == 6 * 4


def passes(layers: list[tuple[str, int]], dropout: bool, times: int) -> Make:
    """Steps of several passes through a random network; the result of the last is held."""

    def make() -> tuple[nn.Module, Step]:
        net = Net([name for name, _ in layers], [source for _, source in layers])
        data = torch.randn(256, 32, generator=torch.Generator().manual_seed(3))

        def step() -> Tensor:
            total = torch.zeros(())
            for _ in range(times):
                x = functional.dropout(net(data), 0.3 * dropout)
                (x * x.detach().exp_().clamp_(max=2)).square().mean().backward()
                total += x.detach().sum()
            return total

        return net, step

    return make


@pytest.mark.parametrize(
    ("names", "sources", "share"),
    [  # at the pass's end more bytes leave than the state takes, or as many
        ("exp linear exp exp", [0, 0, 0, 0], 0.75),
        (
            "exp exp linear across across linear transpose across tanh",
            [0, 16, 20, 5, 7, 8, 20, 13, 11],
            0.82,
        ),
    ],
)
def test_bytes_that_the_program_has_let_go_of_do_not_hide_the_optimizers_state(
    names: str, sources: list[int], share: float
) -> None:
    make = passes(list(zip(names.split(), sources, strict=True)), dropout=False, times=2)
    plain = run(make)
    limit = int(share * max(plain.peaks))
    done = run(make, limit, again=False)
    assert equal(plain, done)
    assert max(done.peaks) <= limit


@settings(deadline=None, max_examples=25, suppress_health_check=list(HealthCheck))
@given(
    layers=st.lists(st.tuples(LAYERS, st.integers(0, 20)), min_size=4, max_size=14),
    share=st.floats(0.4, 0.95),
    dropout=st.booleans(),
    times=st.integers(1, 2),
)
def test_random_programs(
    layers: list[tuple[str, int]], share: float, dropout: bool, times: int
) -> None:
    make = passes(layers, dropout, times)
    plain = run(make)
    limit = int(share * max(plain.peaks))
    try:
        under = run(make, limit)
    except lms.NoPlanError as error:
        assert 0 < error.shortfall <= max(plain.peaks)  # noqa: PT017
        return
    assert equal(plain, under)
    assert max(under.peaks) <= limit


def test_what_a_block_is_made_from_is_needed_as_early() -> None:
    keys = [*(PackKey(n, 8, (8,), "") for n in range(3)), *[None] * 3]
    blocks = [TracedBlock(8, n, min(n + 1, 2), 5 - n, 5 - n) for n in range(3)]
    trace = Trace([0, 1, 2, 2, 1, 0], list(keys), [1.0] * 6, [0] * 6, blocks)
    trace.recomputations = {
        1: Recomputation(0.5, (0,), 4, 7),
        2: Recomputation(0.25, (1,), 0, 9),
    }
    other = with_repeated(trace, [1])
    assert other.blocks[0].used == 4
    assert other.seconds == [1, 1, 1, 1, 1.5, 1]
    assert other.other_bytes == [0, 8, 8, 0, 12, 0]
    assert np.array_equal(trace.resident(), [8, 16, 24, 24, 16, 8])


def test_a_plan_without_a_gpu_tells_what_is_computed_again() -> None:
    limit = int(0.7 * max(run(perceptrons).peaks))
    report = lms.plan(
        lambda: perceptrons()[1],
        limit,
        smallest=1024,
        speed=SLOW_BUS,
        recompute_operations=True,
    )
    assert report.operations > 0
    assert report.operations_bytes > 0
    assert report.predicted_peak <= limit
