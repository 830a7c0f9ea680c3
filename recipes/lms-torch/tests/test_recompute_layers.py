"""Layers of all kinds that may be computed again: the numbers of training without LMS, or an error.

Each runs long enough for LMS to have chosen them, on a bus so slow that it wants all.
"""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import lms
import pytest
import torch
from lms.hooks.recomputed_layers import _Recomputation
from lms.planning import recompute_policy
from models import batch
from test_recompute import SLOW, Block, Net
from torch import Tensor, nn

STEPS = 12

Loss = Callable[[Any, Tensor], Tensor]


def train(
    model: nn.Module,
    loss: Loss,
    limit: int | None,
    rows: list[int],
    *,
    backward: Callable[[Tensor], None] = Tensor.backward,
    late: int = 0,
    manual: bool = False,
) -> tuple[list[Tensor], int, lms.Report | None]:
    """Losses, gradients of the last step, and buffers; the highest bytes; the report.

    Args:
        rows: of each step's batch.
        late: the step before which the layers are named.
        manual: no optimizer of torch's.
    """
    torch.manual_seed(3)
    device, found = lms.SimulatedDevice("64GiB", SLOW), list[Tensor]()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    support = lms.LMS(limit, smallest=1024, device=device) if limit else None
    report = recomputed = None
    with device, support or nullcontext():
        for number, count in enumerate(rows):
            if support and number == late:
                recomputed = lms.recompute(list(model.blocks))
            optimizer.zero_grad()
            one = loss(model, batch(count))
            backward(one)
            found.append(one.detach().clone())
            del one
            if manual:
                with torch.no_grad():
                    for p in model.parameters():
                        p -= 1e-4 * p.grad
            else:
                optimizer.step()
        if support:
            report = support.report()
    if recomputed:
        recomputed.remove()
    found += [p.grad for p in model.parameters() if p.grad is not None]
    return found + list(model.buffers()), device.highest, report


def both(
    make: Callable[[], nn.Module],
    loss: Loss = lambda model, x: model(x).square().mean(),
    share: float = 0.6,
    rows: list[int] | None = None,
    **options: Any,
) -> lms.Report:
    """In-core and under LMS that may compute again: the same bits, below the limit."""
    rows = rows or [512] * STEPS
    plain, peak, _ = train(make(), loss, None, rows, **options)
    limit = int(share * peak)
    under, highest, report = train(make(), loss, limit, rows, **options)
    assert len(plain) == len(under)
    assert all(map(torch.equal, plain, under))
    assert highest <= limit
    assert report is not None
    return report


@pytest.fixture
def all_chosen(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Whatever may be chosen is, for some steps at least; gets an item for each computing again."""
    entered: list[int] = []
    enter = _Recomputation.__enter__

    def spy(again: _Recomputation) -> None:
        entered.append(again.layer.number)
        enter(again)

    monkeypatch.setattr(
        recompute_policy, "choose_layers", lambda *given: frozenset(given[-2][: given[-1]])
    )
    monkeypatch.setattr(_Recomputation, "__enter__", spy)
    return entered


def twice(loss: Tensor) -> None:
    loss.backward(retain_graph=True)
    loss.backward()


def test_the_graph_is_used_again(all_chosen: list[int]) -> None:
    both(lambda: Net(4), backward=twice, share=1.5)
    assert all_chosen


def test_second_derivatives(all_chosen: list[int]) -> None:
    def loss(model: Any, x: Tensor) -> Tensor:
        x = x.requires_grad_()
        out = model(x).square().mean()
        (slope,) = torch.autograd.grad(out, x, create_graph=True)
        return out + slope.square().sum()

    both(lambda: Net(4), loss, share=1.5)
    assert all_chosen


@pytest.mark.parametrize("share", [0.5, 0.6])
def test_a_larger_batch_comes_later(share: float) -> None:
    """Its first iteration needs no more than LMS alone: nothing is computed again at a new size."""
    report = both(Net, share=share, rows=[128] * STEPS + [512] * STEPS)
    assert report.again


class Wrapped(Net):
    """Gives its blocks what they want in some other way."""

    def __init__(self, call: Callable[[nn.Module, Tensor], Tensor], block: Any = Block) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.call, self.blocks = call, nn.ModuleList(block(64) for _ in range(8))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = self.call(block, x)
        return self.head(x)


class Listed(Block):
    def forward(self, given: Any, *, debug: bool = False) -> Any:
        return [super().forward(given["x"][0])]


class InPlace(Block):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.mul_(0.5))


class Moody(Block):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * (2 if self.training else 1)


class Statistics(Block):
    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("var", torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        out = super().forward(x)
        return nn.functional.batch_norm(out, self.mean, self.var, training=True)


class Renormalised(nn.BatchNorm1d):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + self.running_mean


class WithRenormalised(Block):
    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.norm = Renormalised(4 * width)


def add_to(block: nn.Module, x: Tensor) -> Tensor:
    h = block(x=x + 0)
    h += x
    return h


def evaluated(model: Any, x: Tensor) -> Tensor:
    model.eval()
    loss = model(x).square().mean()
    model.train()
    return loss


def test_by_keyword() -> None:
    assert both(lambda: Wrapped(lambda block, x: block(x=x))).again
    both(lambda: Wrapped(add_to))


def test_in_lists_and_dicts() -> None:
    def call(block: nn.Module, x: Tensor) -> Tensor:
        return block({"x": [x]}, debug=True)[0]

    assert both(lambda: Wrapped(call, Listed), share=0.5).again


def test_what_is_given_is_changed_in_place() -> None:
    assert both(lambda: Wrapped(lambda block, x: block(x + 1), InPlace)).again == ()


def test_the_mode_is_forward_s() -> None:
    assert both(lambda: Wrapped(lambda block, x: block(x), Moody), evaluated).again


def test_statistics_of_its_own() -> None:
    both(lambda: Wrapped(lambda block, x: block(x), Statistics))
    both(lambda: Wrapped(lambda block, x: block(x), WithRenormalised))


@pytest.mark.parametrize("late", [1, 5])
def test_named_late(late: int) -> None:
    assert both(Net, late=late, rows=[512] * (STEPS + late)).again


def test_without_an_optimizer() -> None:
    assert both(Net, manual=True, rows=[512] * (STEPS + 4)).again


def test_accumulation() -> None:
    def loss(model: Any, x: Tensor) -> Tensor:
        for part in x.chunk(4)[:-1]:
            model(part).square().mean().backward()
        return model(x.chunk(4)[-1]).square().mean()

    assert both(Net, loss, share=0.7, rows=[2048] * STEPS).again


def test_parameters_changed_before_backward() -> None:
    model, device = Net(), lms.SimulatedDevice("64GiB", SLOW)
    _, peak, _ = train(Net(), lambda m, x: m(x).square().mean(), None, [512] * 3)
    recomputed = lms.recompute(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with device, lms.LMS(int(0.6 * peak), smallest=1024, device=device) as support:
        for _ in range(STEPS):
            optimizer.zero_grad()
            model(batch()).square().mean().backward()
            optimizer.step()
        assert support.report().again
        loss = model(batch()).square().mean()
        with torch.no_grad():
            for block in model.blocks:
                block.down.bias += 1
        with pytest.raises(lms.InplaceError, match="changed between forward and backward"):
            loss.backward()
    recomputed.remove()


@dataclass
class Parcel:
    x: Tensor


class Parcels(Block):
    def forward(self, parcel: Parcel) -> Parcel:
        return Parcel(super().forward(parcel.x))


def test_what_it_cannot_see_into() -> None:
    found = both(lambda: Wrapped(lambda block, x: block(Parcel(x)).x, Parcels))
    assert found.again == ()


def test_vmap_goes_by() -> None:
    model, device = Net(2).eval(), lms.SimulatedDevice("64GiB", SLOW)
    x = batch().view(4, 128, 64)
    plain = torch.vmap(model)(x)
    recomputed = lms.recompute(model)
    with device, lms.LMS("1GiB", smallest=1 << 30, device=device), torch.no_grad():
        assert torch.equal(torch.vmap(model)(x), plain)
    recomputed.remove()


def test_a_report_between_forward_and_backward() -> None:
    model, device = Net(), lms.SimulatedDevice("64GiB", SLOW)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with device, lms.LMS("1GiB", smallest=1024, device=device) as support:
        for _ in range(4):
            loss = model(batch()).square().mean()
            if _ > 1:
                assert support.report().blocks > 0
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()


def test_taking_back_and_wrapping() -> None:
    import copy
    import inspect

    model = Net(2)
    first = lms.recompute(model)
    with pytest.raises(lms.LMSError, match=r"layer 0 is inside blocks\.0, given before"):
        lms.recompute([model.blocks[0].up])
    assert "x" in inspect.signature(model.blocks[0].forward).parameters
    twin = copy.deepcopy(model)
    lms.recompute(twin).remove()
    assert "forward" not in vars(twin.blocks[0])
    wrapped = model.blocks[1].forward

    def mine(x: Tensor) -> Tensor:
        return wrapped(x)

    model.blocks[1].forward = mine
    first.remove()
    first.remove()
    assert "forward" not in vars(model.blocks[0])
    assert model.blocks[1].forward is mine
    assert model(batch()).shape == (512, 64)
