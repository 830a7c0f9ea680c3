"""Random programs that change storages: the numbers of in-core, or an error, never others."""

from __future__ import annotations

from collections.abc import Callable

import lms
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from storages import SIDE, Program, gradient
from torch import Tensor
from torch.nn.functional import gelu
from torch.utils.checkpoint import checkpoint

#: What a random program does next, given its tensors; what it returns is one more of them. That
#: autograd refuses some is as it should be.
STEPS: dict[str, Callable[[Tensor, Tensor], Tensor | None]] = {
    "sin": lambda x, y: x.sin(),
    "sigmoid": lambda x, y: x.sigmoid(),
    "times": lambda x, y: x * y,
    "matmul": lambda x, y: (x @ y) / SIDE,
    "copy": lambda x, y: x * 1,
    "rows": lambda x, y: x.unsafe_chunk(2, 0)[1].repeat(2, 1),
    "chunks in place": lambda x, y: _gates(x),
    "split in place": lambda x, y: _split(x),
    "relu in place": lambda x, y: x.relu_(),
    "add in place": lambda x, y: x.add_(0.5),
    "data in place": lambda x, y: _nothing(x.data.mul_(0.5)),
    "detached in place": lambda x, y: _nothing(x.detach().mul_(0.5)),
    "alias": lambda x, y: x.data,
    "detached": lambda x, y: x.detach(),
    "storage in place": lambda x, y: _write(x),
    "array in place": lambda x, y: _array(x),
    "all in place": lambda x, y: torch._foreach_mul_([x.detach(), y.detach()], 0.5),
    "gelu": lambda x, y: gelu(x),
    "transposed": lambda x, y: x.t(),
    "every second row": lambda x, y: x[::2].repeat(2, 1),
    "half in place": lambda x, y: _nothing(x[: SIDE // 2].mul_(0.5)),
    "checkpoint": lambda x, y: checkpoint(_sine, x, y, use_reentrant=False),
    "function": lambda x, y: _Function.apply(x, y),
    "exchange and change": lambda x, y: _exchange(x),
    "exchange": lambda x, y: setattr(x, "data", y.detach().clone()),
    "set": lambda x, y: _nothing(x.detach().set_(y.detach())),
}


def _gates(x: Tensor) -> Tensor:
    a, b = (x * 1).unsafe_chunk(2, 1)
    return torch.cat([a.sigmoid_() * b.tanh_(), b], 1)


def _split(x: Tensor) -> Tensor:
    a, b = x.unsafe_split(SIDE // 2)
    return torch.cat([a.exp().tanh_(), b.sin_() * a])


def _sine(x: Tensor, y: Tensor) -> Tensor:
    return x.sin() * y


class _Function(torch.autograd.Function):
    """Saves an input, a result, and something of its own, and makes a graph on its way."""

    @staticmethod
    def forward(ctx: object, x: Tensor, y: Tensor) -> Tensor:
        with torch.enable_grad():
            inner = (x.detach().requires_grad_() * 2).sin().detach()
        result = x.sin() * y
        ctx.save_for_backward(x, y, result, inner)  # type: ignore[attr-defined]
        return result

    @staticmethod
    def backward(ctx: object, slope: Tensor) -> tuple[Tensor, Tensor]:
        x, y, result, inner = ctx.saved_tensors  # type: ignore[attr-defined]
        return slope * x.cos() * y + inner, slope * x.sin() + result


def _exchange(x: Tensor) -> None:
    x.data = x.data.clone()
    x.data.mul_(1.5)


def _nothing(_: Tensor) -> None:
    pass


def _write(x: Tensor) -> None:
    storage = x.untyped_storage()
    torch.empty(0).set_(storage).mul_(0.5)


def _array(x: Tensor) -> None:
    array = x.detach().numpy()
    array *= 0.5


def made(steps: list[tuple[str, int, int, int]], way: str) -> Program:
    """A program of some steps, each on two tensors; some tensors are dropped on the way.

    Args:
        way: how often it goes back: "once", "twice" with the graph kept, or "double", where the
            gradient has one of its own.
    """

    def program(w: Tensor) -> Tensor:
        tensors, total = [w * 1, w.sin()], torch.zeros(())
        for name, first, second, dropped in steps:
            x = tensors[first % len(tensors)]
            new = STEPS[name](x, tensors[second % len(tensors)])
            del x
            if isinstance(new, Tensor):
                tensors.append(new)
                total = total + new.sum() / SIDE**2
            del new
            if dropped and len(tensors) > 2:
                del tensors[dropped % len(tensors)]
        total = total + w.sum()
        del tensors
        if way == "twice":
            total.backward(retain_graph=True)
        if way == "double":
            (slope,) = torch.autograd.grad(total, w, create_graph=True)
            total = total + slope.sin().sum() / SIDE**2
        return total

    return program


NUMBERS = st.integers(0, 7)


@settings(deadline=None, max_examples=150, suppress_health_check=list(HealthCheck))
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(sorted(STEPS)), NUMBERS, NUMBERS, NUMBERS), min_size=1, max_size=9
    ),
    share=st.floats(0.4, 1.1),
    way=st.sampled_from(["once", "twice", "double"]),
)
def test_random_programs(steps: list[tuple[str, int, int, int]], share: float, way: str) -> None:
    program = made(steps, way)
    try:
        plain, peak = gradient(program, None)
    except RuntimeError as error:
        assert "modified by an inplace" in str(error) or "view" in str(error)  # noqa: PT017
        with pytest.raises(RuntimeError):
            gradient(program, 1 << 30)
        return
    for limit in (1 << 30, int(share * peak)):
        try:
            under, _ = gradient(program, limit)
        except lms.NoPlanError:
            assert limit < peak
        except lms.InplaceError as error:
            assert "given other data" in str(error)  # noqa: PT017
        else:
            assert all(
                torch.equal(a, b) or torch.equal(a.isnan(), b.isnan())
                for a, b in zip(plain, under, strict=True)
            )
