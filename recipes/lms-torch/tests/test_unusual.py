"""Iterations without a backward, packed sequences, several threads, tensors of other kinds."""

from __future__ import annotations

import threading
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import lms
import pytest
import torch
from lms.hooks.recomputed_layers import RecomputedLayers
from lms.paging.paged_model import PagedModel
from models import SPEED, Step, batch, compare, equal, mlp, train
from torch import Tensor, nn

Made = tuple[nn.Module, Step]


def watched(keep: bool) -> Callable[[], Made]:
    """A loss that is only looked at, with its graph; kept until the next, or dropped."""

    def make() -> Made:
        model, data, other, kept = mlp(), batch(), batch(300), list[Tensor]()

        def step() -> Tensor:
            looked = model(other).square().mean()
            if keep:
                kept[:] = [looked]
            del looked
            loss = model(data).square().mean()
            loss.backward()
            return loss.detach()

        return model, step

    return make


class Stop(Exception):
    pass


def interrupted(place: int) -> Callable[[], Made]:
    """Every other step ends early: in a layer of forward, or before backward if that is none."""

    def make() -> Made:
        model, data = mlp(), batch()
        odd = False

        def hook(*_: object) -> None:
            if odd:
                raise Stop

        if place < len(model):
            model[place].register_forward_hook(hook)

        def step() -> Tensor:
            nonlocal odd
            odd = True
            try:
                loss = model(data).square().mean()
                hook()
                loss.backward()
            except Stop:
                odd = False
            loss = model(data).square().mean()
            loss.backward()
            return loss.detach()

        return model, step

    return make


@pytest.mark.parametrize("share", [0.9, 0.7, 0.5])
@pytest.mark.parametrize(
    "make",
    [watched(False), watched(True), interrupted(3), interrupted(20), interrupted(99)],
    ids=["watched", "kept", "early", "late", "before backward"],
)
def test_what_no_backward_uses_leaves_room(make: Callable[[], Made], share: float) -> None:
    _, under = compare(make, share, steps=8)
    assert under.report is not None
    assert under.report.learned <= 6  # the plan is followed from then on
    assert under.report.moved > 0


@pytest.mark.parametrize(
    "meanwhile",
    [
        lambda support, model: support.report(),
        lambda support, model: lms.page_parameters(model, smallest=1024),
        lambda support, model: lms.recompute([model[0]]),
    ],
    ids=["report", "page", "recompute"],
)
@pytest.mark.parametrize("retain", [True, False], ids=["between two backwards", "before backward"])
def test_an_iteration_that_ends_before_its_last_backward(
    meanwhile: Callable[[lms.LMS, nn.Module], Any], retain: bool
) -> None:
    def gradients(under: bool) -> list[Tensor]:
        model, device, begun = mlp(3), lms.SimulatedDevice("1GiB", SPEED), None
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        with device, lms.LMS("1GiB", smallest=1024, device=device) as support:
            for number in range(5):
                optimizer.zero_grad()
                loss = model(batch()).square().mean()
                if retain:
                    loss.backward(retain_graph=True)
                if under and number == 2:
                    begun = meanwhile(support, model)
                loss.backward()
                optimizer.step()
        if isinstance(begun, PagedModel):
            lms.keep_parameters(begun)
        elif isinstance(begun, RecomputedLayers):
            begun.remove()
        return [p.grad.clone() for p in model.parameters() if p.grad is not None]

    assert all(map(torch.equal, gradients(False), gradients(True)))


def packed() -> Made:
    torch.manual_seed(0)
    model, lengths = nn.GRU(20, 36), torch.linspace(30, 3, 18).long()
    data = torch.randn(30, 18, 20, generator=torch.Generator().manual_seed(1))

    def step() -> Tensor:
        given = nn.utils.rnn.pack_padded_sequence(data, lengths)
        result, _ = nn.utils.rnn.pad_packed_sequence(model(given)[0])
        loss = result.square().mean()
        loss.backward()
        return loss.detach()

    return model, step


@pytest.mark.parametrize("share", [0.98, 0.9, 0.8])
def test_packed_sequences(share: float) -> None:
    """Hundreds of storages of odd sizes: the allocator's pieces count."""
    compare(packed, share)


def test_packed_sequences_that_do_not_fit() -> None:
    with pytest.raises(lms.NoPlanError, match=r"short; raise the limit"):
        compare(packed, 0.4)


@pytest.mark.parametrize("hooked", [False, True], ids=["one thread's LMS", "both threads'"])
def test_a_model_in_each_of_two_threads(hooked: bool) -> None:
    base = [mlp(3), mlp(3)]
    nn.init.zeros_(base[1][0].bias)

    def both(device: lms.SimulatedDevice | None, engine: object = None) -> list[list[Tensor]]:
        models, failed = deepcopy(base), list[BaseException]()

        def work(model: nn.Module) -> None:
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            for _ in range(5):
                optimizer.zero_grad()
                model(batch(200)).square().mean().backward()
                optimizer.step()

        def run(model: nn.Module) -> None:
            try:
                if device is None:
                    work(model)
                elif hooked:
                    pack, unpack = engine.pack, engine.unpack  # type: ignore[attr-defined]
                    with device, torch.autograd.graph.saved_tensors_hooks(pack, unpack):
                        work(model)
                else:
                    with device:
                        work(model)
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=run, args=[model]) for model in models]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed
        return [[p.detach() for p in model.parameters()] for model in models]

    plain = both(None)
    for _ in range(3):
        device = lms.SimulatedDevice("1GiB", SPEED)
        with lms.LMS("1GiB", smallest=1024, device=device) as support:
            under = both(device, support.engine)
        for first, second in zip(plain, under, strict=True):
            assert all(map(torch.equal, first, second))


def test_a_second_thread_cannot_switch_it_on() -> None:
    found: list[str] = []

    def second() -> None:
        try:
            lms.enable("1GiB", device=lms.SimulatedDevice())
        except lms.LMSError as error:
            found.append(str(error))

    with lms.LMS("1GiB", device=lms.SimulatedDevice()):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join()
    assert found == ["LMS is on already; switch it off first: lms.disable(), or leave its `with`"]


@pytest.mark.parametrize("smallest", [1, 1 << 29], ids=["all", "none"])
@pytest.mark.parametrize("again", [False, True], ids=["", "again"])
@pytest.mark.parametrize("layout", [torch.jagged, torch.strided], ids=["jagged", "strided"])
def test_nested_tensors_are_left_alone(layout: torch.layout, again: bool, smallest: int) -> None:
    def gradients(under: bool) -> list[Tensor]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU())
        parts = [torch.randn(n, 16) for n in (5, 9, 30)]
        device = lms.SimulatedDevice("1GiB")

        def step() -> None:
            model.zero_grad()
            result = model(torch.nested.nested_tensor(parts, layout=layout))
            torch.nested.to_padded_tensor(result, 0.0).square().sum().backward()

        recomputed = lms.recompute(model) if again and under else None
        try:
            if under:
                with device, lms.LMS("1GiB", smallest=smallest, device=device):
                    for _ in range(3):
                        step()
            else:
                step()
        finally:
            if recomputed is not None:
                recomputed.remove()
        return [p.grad.clone() for p in model.parameters() if p.grad is not None]

    assert all(map(torch.equal, gradients(False), gradients(True)))


def test_sparse_tensors_are_left_alone() -> None:
    def make() -> Made:
        torch.manual_seed(0)
        model, rows = nn.Sequential(nn.Linear(64, 64), nn.Tanh()), torch.eye(64)

        def step() -> Tensor:
            hidden = torch.sparse.mm(rows.to_sparse(), model(batch(64)))
            loss = (rows.to_sparse_csr() @ hidden).square().mean()
            loss.backward()
            return loss.detach()

        return model, step

    plain = train(*make())
    assert equal(plain, train(*make(), limit=1 << 30))
