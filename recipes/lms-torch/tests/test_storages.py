"""Storages that change after they were saved: the numbers of in-core, or an error, never others."""

from __future__ import annotations

import weakref
from collections.abc import Callable

import lms
import pytest
import torch
from models import SPEED
from storages import SIDE, Program, compare, gradient
from torch import Tensor, nn


def chunks(w: Tensor) -> Tensor:
    a, b = (w * 1).unsafe_chunk(2, 1)
    a.sigmoid_()
    b.tanh_()
    r = a * b
    del a, b
    return r.sin().cos().sum()


def splits(w: Tensor) -> Tensor:
    a, b, c = (w * 1).unsafe_split_with_sizes([16, 16, 32], 1)
    b.exp_()
    a.sigmoid_()
    d = (a * b).relu_()
    c.tanh_()
    return (d.sin() @ c[:16]).sum() / SIDE


def data(w: Tensor) -> Tensor:
    x = w * 1
    y = x.sin()
    x.data.mul_(2)
    del x
    return y.cos().exp().sum()


def late_data(w: Tensor) -> Tensor:
    x = w * 1
    y = x.sin()
    alias = x.data
    del x
    y = y.cos().sin().cos()
    alias.mul_(2)
    del alias
    return y.cos().exp().sum()


def numpy(w: Tensor) -> Tensor:
    x = w * 1
    array = x.detach().numpy()
    y = x.sin().cos()
    del x
    array *= 3
    del array
    return y.exp().cos().sum()


def from_numpy(w: Tensor) -> Tensor:
    import numpy as np

    array = np.full((SIDE, SIDE), 0.5, np.float32)
    y = (w * torch.from_numpy(array)).sin().cos().exp()
    array += 1
    return y.sum()


def dlpack(w: Tensor) -> Tensor:
    x = w * 1
    other = torch.from_dlpack(x.detach())  # another storage, the same memory
    y = (w * other).sin()
    del other
    y = y.cos().exp()
    x.data.mul_(0.5)
    return y.sum()


def storage(w: Tensor) -> Tensor:
    x = w * 1
    own = x.untyped_storage()
    y = x.sin().cos()
    del x
    y = y.exp().cos()
    torch.empty(0).set_(own).mul_(2)
    return y.sum()


class _Square(torch.autograd.Function):
    """Saves what it goes on to change."""

    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        twice = x * 2
        ctx.save_for_backward(x, twice)  # type: ignore[attr-defined]
        twice.data.add_(1)
        return x * x

    @staticmethod
    def backward(ctx: object, slope: Tensor) -> Tensor:
        x, twice = ctx.saved_tensors  # type: ignore[attr-defined]
        return slope * twice + x


def function(w: Tensor) -> Tensor:
    return _Square.apply(w.sin()).cos().sum()


def reclaimed(w: Tensor) -> Tensor:
    x = w * 1
    y = x.sin().cos()
    if torch.cuda.get_enabled_lms():
        torch.cuda.reclaim_inactive()
    x.data.mul_(2)
    del x
    return y.exp().cos().sum()


def grown(w: Tensor) -> Tensor:
    x = torch.full((SIDE, SIDE), 0.5)
    y = (w * x).sin()
    x.data.resize_(2 * SIDE, SIDE).add_(1)
    return y.cos().exp().sum()


def vacated(w: Tensor) -> Tensor:
    """As FSDP does it: no bytes between forward and backward."""
    x = torch.full((SIDE, SIDE), 0.5)
    y = (w * x).sin()
    x.untyped_storage().resize_(0)
    y = y.cos().exp()
    x.untyped_storage().resize_(4 * SIDE * SIDE)
    x.data.fill_(0.25)
    return y.sum()


def parameters_data(w: Tensor) -> Tensor:
    y = (w * w.sin().detach()).cos().sum()
    w.data = w.data * 0.5
    return y


def leafs_data(w: Tensor) -> Tensor:
    x = torch.full((8, 8), 0.5, requires_grad=True)
    y = (w[:8, :8] * x).sin().sum()
    w.data.mul_(0.5)
    return y + (w * 2).cos().sum()


@pytest.mark.parametrize(
    "program",
    [
        *(chunks, splits, data, late_data, numpy, from_numpy, dlpack, storage, function, grown),
        *(reclaimed, vacated, parameters_data, leafs_data),
    ],
)
def test_what_changes_unseen_is_seen(program: Program) -> None:
    compare(program, 0.95, 0.8, 0.7, 0.6, 0.5)


class _Taken:
    """What the allocator took."""

    def __init__(self, room: Tensor) -> None:
        self.room = room

    def withdraw(self) -> Tensor:
        return self.room


class _Short(lms.SimulatedDevice):
    """An allocator that is always short and takes at once whatever it is offered."""

    taken = 0

    def offer(self, flat: Tensor) -> _Taken:  # type: ignore[override]
        room, _ = self.page_out(flat)
        self.vacate(flat)
        self.taken += 1
        return _Taken(room)


@pytest.mark.parametrize("program", [chunks, splits, late_data, storage, function, reclaimed])
def test_what_the_allocator_takes(program: Program) -> None:
    plain, _ = gradient(program, None, 5)
    device = _Short("1GiB", SPEED)
    under, _ = gradient(program, 1 << 30, 5, device)
    assert all(map(torch.equal, plain, under))
    assert device.taken > 0


@pytest.mark.parametrize("cell", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
def test_cells_with_their_own_kernels(cell: type[nn.RNNCellBase]) -> None:
    torch.manual_seed(0)
    inner = cell(SIDE, SIDE)

    def program(w: Tensor) -> Tensor:
        hidden = None
        for _ in range(3):
            hidden = inner(w, hidden)
        return (hidden[1] if isinstance(hidden, tuple) else hidden).square().sum()

    compare(program, 0.9, 0.8, 0.7, 0.6)


def test_data_of_another_is_an_error() -> None:
    def program(w: Tensor) -> Tensor:
        nonlocal kept
        kept = w * 1
        y = kept.sin()
        kept.data = torch.zeros(SIDE, SIDE)
        return y.sum()

    kept = torch.empty(0)
    with pytest.raises(lms.InplaceError, match=r"was given other data, `tensor\.data = "):
        gradient(program, 1 << 30)


def dropped(w: Tensor) -> Tensor:
    x = w * 1
    y = nn.functional.gelu(x)
    x.data = x.data.clone()
    x.data.mul_(1.5)
    del x
    return y.cos().exp().sum()


def dropped_view(w: Tensor) -> Tensor:
    x = (w * 1).t()
    y = x.sin() * x
    x.data = torch.ones(SIDE, SIDE)
    del x
    return y.cos().exp().sum()


def dropped_result_of_a_function(w: Tensor) -> Tensor:
    x = _Square.apply(w)
    y = x.sin()
    x.data = torch.ones(SIDE, SIDE)
    del x
    return y.cos().exp().sum()


@pytest.mark.parametrize("program", [dropped, dropped_view, dropped_result_of_a_function])
def test_data_of_one_that_is_dropped_is_an_error(program: Program) -> None:
    with pytest.raises(lms.InplaceError, match=r"was given other data, `tensor\.data = "):
        gradient(program, 1 << 30)
    plain, _ = gradient(program, None)
    small, _ = gradient(program, 1 << 30, smallest=1 << 20)  # stays, and is kept as autograd does
    assert all(map(torch.equal, plain, small))


class _Nested(torch.autograd.Function):
    """Saves its result, after it has made a graph of its own."""

    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        with torch.enable_grad():
            (x.detach().requires_grad_() * 2).sin()
        result = x.sin()
        ctx.save_for_backward(x, result)  # type: ignore[attr-defined]
        return result

    @staticmethod
    def backward(ctx: object, slope: Tensor) -> Tensor:
        x, result = ctx.saved_tensors  # type: ignore[attr-defined]
        return slope * x.cos() * result


@pytest.mark.parametrize("smallest", [1, 1 << 20])
@pytest.mark.parametrize("operation", [torch.exp, _Nested.apply, nn.functional.gelu])
def test_a_graph_that_no_backward_uses_dies(
    operation: Callable[[Tensor], Tensor], smallest: int
) -> None:
    device = lms.SimulatedDevice("1GiB", SPEED)
    weight = nn.Parameter(torch.ones(SIDE, SIDE))
    with device, lms.LMS(1 << 30, smallest=smallest, device=device):
        loss = operation(weight * 1).sin().sum()
        dies = weakref.ref(loss)
        del loss
        assert dies() is None
        assert device.used <= 4 * SIDE * SIDE  # the parameter's


def test_data_of_a_result_is_not() -> None:
    """Autograd keeps a result's own bytes: pipelines give up those of what they have sent."""

    def program(w: Tensor) -> Tensor:
        kept.append((w * 1).exp())
        y = kept[-1].sum()
        kept[-1].data = torch.empty(1)
        return y

    kept: list[Tensor] = []
    compare(program)


class _Halves(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)  # type: ignore[attr-defined]
        return x * x

    @staticmethod
    def backward(ctx: object, slope: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors  # type: ignore[attr-defined]
        result = 2 * slope * x
        x.mul_(0.5)
        return result


def test_changes_in_backward_are_an_error_as_without() -> None:
    def program(w: Tensor) -> Tensor:
        y = _Halves.apply(w * 1).sum()
        y.backward(retain_graph=True)
        return y

    with pytest.raises(RuntimeError, match="has been modified by an inplace operation"):
        gradient(program, None)
    with pytest.raises(lms.InplaceError, match="has been modified by an inplace operation"):
        gradient(program, 1 << 30)
