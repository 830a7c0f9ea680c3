"""Tensors and settings that change between an operation and its repetition: the bits of in-core."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import count
from typing import Any

import lms
import pytest
import torch
from lms.operations.recipe import Given, Operation, Recipe, Value, View
from lms.operations.table import numerics
from models import SLOW_BUS, Step, batch, equal, mlp_step
from test_recompute_operations import Make, run, stepping
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes


class Shifted(nn.Module):
    """GELU after a shift: nothing but LMS needs the shift in backward."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.ModuleList(nn.Linear(64, 64) for _ in range(6))
        self.shift = nn.Parameter(torch.ones(64))

    def forward(self, x: Tensor) -> Tensor:
        """(rows, 64) to the same."""
        for linear in self.linear:
            x = linear(torch.tanh(x + self.shift))
        return x


def shifted(between: Callable[[nn.Parameter], None]) -> Make:
    def make() -> tuple[nn.Module, Step]:
        torch.manual_seed(0)
        model, data, steps = Shifted(), batch(2048), count()

        def step() -> Tensor:
            loss = model(data).square().mean()
            if next(steps) >= 3:  # the plan is made by then
                between(model.shift)
            loss.backward()
            return loss.detach()

        return model, step

    return make


def _add(shift: nn.Parameter) -> None:
    with torch.no_grad():
        shift.add_(0.25)


def _add_to_data(shift: nn.Parameter) -> None:
    shift.data.mul_(1.5)


class Counting(Shifted):
    """The shift also grows in forward, after its first use."""

    def forward(self, x: Tensor) -> Tensor:
        """(rows, 64) to the same."""
        x = torch.tanh(self.linear[0](x) + self.shift)
        with torch.no_grad():
            self.shift.add_(0.25)
        return super().forward(x)


def test_a_change_within_forward_before_the_use_is_no_error() -> None:
    def make() -> tuple[nn.Module, Step]:
        torch.manual_seed(0)
        return stepping(Counting(), batch(2048))

    plain = run(make)
    done = run(make, int(0.7 * max(plain.peaks)))
    assert equal(plain, done)
    assert done.report is not None
    assert done.report.operations > 0


def _assign_data(shift: nn.Parameter) -> None:
    shift.data = shift.data * 1.5


def _add_unseen(shift: nn.Parameter) -> None:
    with _disable_current_modes():
        _add(shift)


@pytest.mark.parametrize("change", [_add, _add_to_data, _assign_data])
def test_a_change_of_what_others_are_made_from_comes_after_them(
    change: Callable[[nn.Parameter], None],
) -> None:
    plain = run(shifted(change))
    limit = int(0.8 * max(plain.peaks))
    unchanged = run(shifted(lambda _: None), limit)
    assert unchanged.report is not None
    assert unchanged.report.operations > 0
    done = run(shifted(change), limit)
    assert equal(plain, done)
    assert max(done.peaks) <= limit


def test_an_unseen_change_is_an_error_before_a_wrong_number() -> None:
    limit = int(0.8 * max(run(shifted(_add_unseen)).peaks))
    with pytest.raises(lms.InplaceError, match=r"computes again.*recompute_operations"):
        run(shifted(_add_unseen), limit)


class _Halved(torch.autograd.Function):
    """In place, as kernels do it that torch does not know of: only the version tells."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.mark_dirty(x)
        array = x.numpy()
        array *= 0.5
        return x

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Tensor:
        return slope * 0.5


def _halve_unseen(x: Tensor) -> Tensor:
    with _disable_current_modes():
        return x.mul_(0.5)


@pytest.mark.parametrize("halve", [_Halved.apply, _halve_unseen])
@pytest.mark.parametrize("used", ["before", "after", "before and after", "as a start", "saved"])
def test_an_unseen_change_within_forward_is_no_other_number(
    halve: Callable[[Tensor], Tensor], used: str
) -> None:
    class Unseen(Shifted):
        def forward(self, x: Tensor) -> Tensor:
            """(rows, 64) to the same."""
            for linear in self.linear:
                hidden = x.detach() * 2
                if used == "as a start":
                    x = x * hidden  # saves it
                    made = hidden.exp() * 1
                    halve(hidden)
                    x = torch.tanh(linear(x) * made)
                    continue
                made = hidden.exp() * 1 if used != "after" else x * 1
                if used == "saved":
                    x = linear(x) * (hidden + 1)
                halve(hidden)
                x = linear(x) * made
                x = torch.tanh(x * (hidden if used != "before" else 1))
            return x

    def make() -> tuple[nn.Module, Step]:
        torch.manual_seed(0)
        return stepping(Unseen(), batch(512))

    try:
        plain = run(make)
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error)  # noqa: PT017
        with pytest.raises(lms.InplaceError):
            run(make, 1 << 30)
        plain = None
    limit = int(0.7 * (max(plain.peaks) if plain else 9 << 20))
    try:
        done = run(make, limit)
    except lms.InplaceError:
        assert plain is None or used == "as a start"
        return
    assert plain is not None
    assert equal(plain, done)


def test_another_thread_that_works_for_lms_hides_no_change() -> None:
    def change(shift: nn.Parameter) -> None:
        inside, done = threading.Event(), threading.Event()

        def work() -> None:
            with lms.session.current().engine.operations.aside():
                inside.set()
                done.wait()

        thread = threading.Thread(target=work)
        if lms.session._current is not None:
            thread.start()
            inside.wait()
        _add_to_data(shift)
        done.set()
        if thread.ident is not None:
            thread.join()

    plain = run(shifted(change))
    assert equal(plain, run(shifted(change), int(0.8 * max(plain.peaks))))


def test_memory_that_was_given_up_is_an_error() -> None:
    """As FSDP gives up a parameter's memory; it fills that again before its layer's backward."""
    kept = list[Tensor]()

    def free(shift: nn.Parameter) -> None:
        kept.append(shift.detach().clone())
        shift.untyped_storage().resize_(0)

    limit = int(0.8 * max(run(shifted(_add)).peaks))
    with pytest.raises(lms.InplaceError, match="computes again"):
        run(shifted(free), limit)


def test_another_default_dtype_in_backward_is_an_error() -> None:
    def step_with_other_dtype() -> tuple[nn.Module, Step]:
        model, data = mlp_step()[0], batch()

        def step() -> Tensor:
            loss = model(data).square().mean()
            torch.set_default_dtype(torch.float64)
            try:
                loss.backward()
            finally:
                torch.set_default_dtype(torch.float32)
            return loss.detach()

        return model, step

    limit = int(0.6 * max(run(step_with_other_dtype).peaks))
    with pytest.raises(lms.LMSError, match="the default dtype"):
        run(step_with_other_dtype, limit)


def test_other_settings_in_backward_are_an_error() -> None:
    threads = torch.get_num_threads()

    def step_with_other_threads() -> tuple[nn.Module, Step]:
        model, data = mlp_step()[0], batch()

        def step() -> Tensor:
            torch.set_num_threads(1)
            loss = model(data).square().mean()
            torch.set_num_threads(2)
            loss.backward()
            return loss.detach()

        return model, step

    try:
        limit = int(0.6 * max(run(step_with_other_threads).peaks))
        with pytest.raises(lms.LMSError, match="the number of threads, has changed"):
            run(step_with_other_threads, limit)
    finally:
        torch.set_num_threads(threads)


def test_onednn_off_in_forward_only_is_an_error() -> None:
    def make() -> tuple[nn.Module, Step]:
        model, data = mlp_step()[0], batch()

        def step() -> Tensor:
            with torch.backends.mkldnn.flags(enabled=False):  # type: ignore[no-untyped-call]
                loss = model(data).square().mean()
            loss.backward()
            return loss.detach()

        return model, step

    limit = int(0.6 * max(run(make).peaks))
    with pytest.raises(lms.LMSError, match=r"a setting of torch\.backends"):
        run(make, limit)


def test_the_newer_names_of_precisions_may_be_used() -> None:
    before = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    try:
        assert "tf32" in numerics()
    finally:
        torch.backends.cuda.matmul.fp32_precision = before


def test_autocast_in_backward_does_not_change_what_is_repeated() -> None:
    matrix, device = torch.rand(8, 8), lms.SimulatedDevice("1GiB")
    view = View(0, matrix.dtype, (8, 8), (8, 1), 0)
    product = Operation(0, torch.ops.aten.mm.default, (view, view), {}, [Value(0, 0)], [])
    product.results = (1,)
    recipe = Recipe(device, 1, [product], {}, {0: Given(matrix, matrix._version, matrix)})
    with torch.autocast("cpu", torch.bfloat16):
        again = recipe.run(matrix)
    assert torch.equal(again, (matrix @ matrix).flatten())


def test_tensors_of_inference_mode_may_be_used() -> None:
    with torch.inference_mode():
        shift = torch.ones(64)

    def make() -> tuple[nn.Module, Step]:
        model, data = mlp_step()[0], batch()

        def step() -> Tensor:
            loss = (model(data) + shift).square().mean()
            loss.backward()
            return loss.detach()

        return model, step

    plain = run(make)
    assert equal(plain, run(make, int(0.6 * max(plain.peaks))))


def test_a_change_after_lms_was_switched_off_comes_after_what_is_repeated() -> None:
    found, peak = list[list[Tensor]](), 0
    for limited in (False, True):
        torch.manual_seed(0)
        model, data, device = Shifted(), batch(2048), lms.SimulatedDevice("64GiB", SLOW_BUS)
        limit = int(0.7 * peak) if limited else 1 << 34
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        with device:
            with lms.LMS(limit, smallest=1024, device=device, recompute_operations=True) as support:
                for _ in range(4):
                    optimizer.zero_grad()
                    model(data).square().mean().backward()
                    optimizer.step()
                optimizer.zero_grad()
                loss = model(data).square().mean()
                assert support.report().operations > 0 or not limited
            model.shift.data.mul_(1.5)
            loss.backward()
        found.append([p.grad for p in model.parameters() if p.grad is not None])
        peak = device.highest
    assert all(map(torch.equal, *found))
