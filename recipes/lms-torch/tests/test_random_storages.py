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
    "exchange": lambda x, y: setattr(x, "data", y.detach().clone()),
    "set": lambda x, y: _nothing(x.detach().set_(y.detach())),
}


def _gates(x: Tensor) -> Tensor:
    a, b = (x * 1).unsafe_chunk(2, 1)
    return torch.cat([a.sigmoid_() * b.tanh_(), b], 1)


def _split(x: Tensor) -> Tensor:
    a, b = x.unsafe_split(SIDE // 2)
    return torch.cat([a.exp().tanh_(), b.sin_() * a])


def _nothing(_: Tensor) -> None:
    pass


def _write(x: Tensor) -> None:
    storage = x.untyped_storage()
    torch.empty(0).set_(storage).mul_(0.5)


def _array(x: Tensor) -> None:
    array = x.detach().numpy()
    array *= 0.5


def made(steps: list[tuple[str, int, int, int]]) -> Program:
    """A program of some steps, each on two tensors; some tensors are dropped on the way."""

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
        return total + w.sum()

    return program


NUMBERS = st.integers(0, 7)


@settings(deadline=None, max_examples=150, suppress_health_check=list(HealthCheck))
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(sorted(STEPS)), NUMBERS, NUMBERS, NUMBERS), min_size=1, max_size=9
    ),
    share=st.floats(0.4, 1.1),
)
def test_random_programs(steps: list[tuple[str, int, int, int]], share: float) -> None:
    program = made(steps)
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
