"""Mistakes say what to do in one sentence, lose nothing, and training goes on."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import lms
import pytest
import torch
from lms.paging.pinned_slabs import PAGE, SlabPool
from models import SPEED, Run, batch, equal, mlp, mlp_step, train
from torch import Tensor, nn


def device(**options: object) -> lms.SimulatedDevice:
    return lms.SimulatedDevice("64GiB", SPEED, **options)  # type: ignore[arg-type]


def goes_on(mistake: Callable[[nn.Module], None], **options: object) -> None:
    """Makes a mistake between two steps of training under LMS: the bits are as without it."""

    def run(limit: int | None, mistake: Callable[[nn.Module], None] | None) -> Run:
        model, step = mlp_step()
        turns = iter(range(9))

        def stumble() -> Tensor:
            if next(turns) == 3 and mistake is not None:
                mistake(model)
            return step()

        return train(model, stumble, limit=limit, steps=6, **options)  # type: ignore[arg-type]

    plain = run(None, None)
    under = run(int(0.7 * max(plain.peaks)), mistake)
    assert equal(plain, under)
    assert max(under.peaks) <= int(0.7 * max(plain.peaks))


@pytest.mark.parametrize("size", [12, "12 B", 80 * 10**3])
def test_a_limit_in_wrong_units(size: int | str) -> None:
    says = r'less than one storage that may move \(1 MiB\); give bytes, or a unit: "12GiB"'
    with pytest.raises(lms.LimitError, match=says):
        lms.LMS(size, device=device())


def test_two_at_once() -> None:
    def second(model: nn.Module) -> None:
        with pytest.raises(lms.LMSError, match="LMS is on already; switch it off first"):
            lms.enable("1GiB", device=device())
        with pytest.raises(lms.LMSError, match="LMS is on already; switch it off first"):
            with lms.LMS("1GiB", device=device()):
                pass

    goes_on(second)


def test_an_optimizer_that_is_paged_twice() -> None:
    where = device()
    with where:
        model, data = mlp(), batch()
        optimizer = torch.optim.Adam(model.parameters())
        paged = lms.page_optimizer(optimizer, smallest=1024, device=where)
        with lms.LMS("1GiB", smallest=1024, device=where):
            for _ in range(3):
                model(data).square().mean().backward()
                optimizer.step()
                with pytest.raises(lms.LMSError, match="is paged already"):
                    lms.page_optimizer(optimizer, device=where)
        paged.remove()
        moments = [value for state in optimizer.state.values() for value in state.values()]
        assert all(isinstance(value, Tensor) for value in moments)
        optimizer.step()


def test_a_paged_model_does_not_move() -> None:
    """Nothing of it has moved when the error comes; switched off, it may move."""
    where = device()
    with where:
        model, data = mlp(), batch()
        paged = lms.page_parameters(model, smallest=1024)
        with lms.LMS("1GiB", smallest=1024, device=where):
            model(data).square().mean().backward()
            weight = next(model.parameters())
            with pytest.raises(lms.LMSError, match=r"is paged.*lms.disable\(\)") as found:
                weight.data = torch.empty_like(weight, device="meta")
            assert "from cpu to meta" in str(found.value)
            assert weight.device.type == "cpu"
            model(data).square().mean().backward()
        lms.keep_parameters(paged)
        model.to("meta")


class Card(lms.SimulatedDevice):
    """Has what is not in double precision, which stands for another card here."""

    def owns(self, tensor: Tensor) -> bool:
        return tensor.dtype is not torch.float64 and super().owns(tensor)


def test_a_model_that_has_moved_away_is_told_once() -> None:
    where = Card("1GiB")
    with where, lms.LMS("1GiB", smallest=1024, device=where) as support:
        model, data = mlp(), batch()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step() -> None:
            model(data).square().mean().backward()
            optimizer.step()

        for _ in range(3):
            step()
        model.double()
        data = data.double()
        with pytest.warns(RuntimeWarning, match="nothing that backward needs lies on the device"):
            step()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            step()
            model.float()
            data = data.float()
            step()
        assert support.report().saved > 0


def test_saved_tensors_stay_where_the_host_is_full() -> None:
    plain = train(*mlp_step())
    limit = int(0.7 * max(plain.peaks))
    small = device(host="256KiB")
    with pytest.raises(lms.NoPlanError, match="Not all has gone: the host has no memory") as found:
        train(*mlp_step(), limit=limit, device=small)
    assert "KiB of 256 KiB" in str(found.value)
    under = train(*mlp_step(), limit=int(1.1 * max(plain.peaks)), device=device(host="256KiB"))
    assert equal(plain, under)


def test_parameters_stay_where_the_host_is_full() -> None:
    small = device(host="100KiB")
    model, data = mlp(), batch()
    with small, lms.LMS("1GiB", smallest=1024, device=small):
        before = [parameter.detach().clone() for parameter in model.parameters()]
        with pytest.raises(lms.HostMemoryError, match="the host has no memory"):
            lms.page_parameters(model, smallest=1024)
        assert all(type(parameter) is nn.Parameter for parameter in model.parameters())
        assert all(map(torch.equal, before, model.parameters()))
        model(data).square().mean().backward()


def test_an_optimizer_s_state_stays_where_the_host_is_full() -> None:
    plain, small = train(*mlp_step()), device(host="300KiB")
    model, step = mlp_step()
    optimizer = torch.optim.Adam(model.parameters())
    lms.page_optimizer(optimizer, bucket="40KiB", smallest=1024, device=small)
    with pytest.warns(RuntimeWarning, match="the host has no memory"):
        under = train(model, step, optimizer=optimizer, device=small)
    assert equal(plain, under)


@pytest.mark.parametrize("kind", [RuntimeError, MemoryError])
def test_pinned_memory_that_cannot_be_had(kind: type[Exception]) -> None:
    def allocate(nbytes: int) -> Tensor:
        if nbytes > 8 * PAGE:
            raise kind("CUDA error: out of memory")
        return torch.empty(nbytes, dtype=torch.uint8)

    pool = SlabPool(8 * PAGE, allocate)
    slot = pool.take(8 * PAGE)
    with pytest.raises(lms.HostMemoryError, match=r"no memory for 36 KiB more.* has 32 KiB"):
        pool.take(9 * PAGE)
    del slot
    assert pool.free == pool.total == 8 * PAGE
