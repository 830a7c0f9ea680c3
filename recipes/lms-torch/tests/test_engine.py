"""Gradients are those of in-core to the bit, the limit holds, and the predicted time comes true."""

import lms
import pytest
import torch
from models import Step, batch, compare, equal, mlp, mlp_step, train
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


@pytest.mark.parametrize("share", [1.01, 0.9, 0.75, 0.6, 0.5, 0.45])
def test_gradients_and_limit(share: float) -> None:
    plain, under = compare(mlp_step, share)
    assert under.report is not None
    assert under.report.predicted == pytest.approx(under.report.measured, rel=1e-3)
    assert under.report.missed == 0
    assert (under.report.moved > 0) == (share < 1)
    if share > 1:
        assert under.seconds[-1] == pytest.approx(plain.seconds[-1], rel=1e-9)


def test_the_swap_set_is_minimal() -> None:
    _, under = compare(mlp_step, 0.75)
    report = under.report
    assert report is not None
    smallest = min(block.nbytes for block in report.swapped)
    # In-core demand less what left is below the limit, and would not be without the smallest block,
    # but for the room that the planner keeps for copies in flight.
    room = 4 * max(block.nbytes for block in report.swapped)
    assert report.demand - report.moved <= report.limit
    assert report.demand - report.moved + smallest + room > report.limit * (1 - 1 / 256)


@pytest.mark.parametrize("reentrant", [True, False])
def test_with_checkpointing(reentrant: bool) -> None:
    def make() -> tuple[nn.Module, Step]:
        model, data = mlp(), batch(2048).requires_grad_()

        def step() -> Tensor:
            hidden = data
            for part in range(0, len(model), 5):
                hidden = checkpoint(model[part : part + 5], hidden, use_reentrant=reentrant)
            loss = hidden.square().mean()
            loss.backward()
            return loss.detach()

        return model, step

    _, under = compare(make, 0.95)
    assert under.report is not None
    assert under.report.moved > 0


def test_retain_graph() -> None:
    def make() -> tuple[nn.Module, Step]:
        model, data = mlp(), batch()

        def step() -> Tensor:
            loss = model(data).square().mean()
            loss.backward(retain_graph=True)
            loss.backward()
            return loss.detach()

        return model, step

    compare(make, 1.01)


def test_gradient_accumulation() -> None:
    def make() -> tuple[nn.Module, Step]:
        model, data = mlp(), batch()

        def step() -> Tensor:
            total = torch.zeros(())
            for part in data.chunk(4):
                loss = model(part).square().mean()
                loss.backward()
                total += loss.detach()
            return total

        return model, step

    compare(make, 0.75)


def test_two_forwards_and_two_models() -> None:
    def make() -> tuple[nn.Module, Step]:
        first, second, data = mlp(4), mlp(3), batch()

        def step() -> Tensor:
            hidden = first(data)
            loss = second(hidden).square().mean() + second(hidden.tanh()).abs().mean()
            loss.backward()
            other = first(data).mean()
            other.backward()
            return loss.detach()

        return nn.ModuleList([first, second]), step

    compare(make, 0.7)


def test_amp() -> None:
    def make() -> tuple[nn.Module, Step]:
        model, data = mlp(), batch()

        def step() -> Tensor:
            with torch.autocast("cpu", torch.bfloat16):
                loss = model(data).square().mean()
            loss.backward()
            return loss.detach()

        return model, step

    compare(make, 0.7)


def test_create_graph() -> None:
    def make() -> tuple[nn.Module, Step]:
        model, data = mlp(3), batch().requires_grad_()

        def step() -> Tensor:
            (slope,) = torch.autograd.grad(model(data).square().mean(), data, create_graph=True)
            loss = slope.square().sum()
            loss.backward()
            return loss.detach()

        return model, step

    compare(make, 0.97)


def test_changing_shapes_are_learned_once_each() -> None:
    model, sizes = mlp(), [512, 256, 512, 384, 256, 512, 384, 256] * 2
    rows = iter(sizes)

    def make() -> tuple[nn.Module, Step]:
        nonlocal model, rows
        model, rows = mlp(), iter(sizes)

        def step() -> Tensor:
            loss = model(batch(next(rows))).square().mean()
            loss.backward()
            return loss.detach()

        return model, step

    _, under = compare(make, 0.6, steps=len(sizes))
    assert under.report is not None
    # Three shapes, the first of them before and after the optimizer's state is there.
    assert under.report.learned <= 4


def test_a_model_that_turns_another_way() -> None:
    turns = iter([])

    def make() -> tuple[nn.Module, Step]:
        nonlocal turns
        model, data = mlp(), batch()
        turns = iter([8, 8, 8, 5, 8, 5, 8, 5, 5])

        def step() -> Tensor:
            loss = model[: 5 * next(turns)](data).square().mean()
            loss.backward()
            return loss.detach()

        return model, step

    _, under = compare(make, 0.7, steps=9)
    assert under.report is not None
    assert under.report.learned <= 4


def test_a_storage_is_saved_once() -> None:
    weight, data = nn.Parameter(torch.randn(64, 64)), torch.randn(64, 64)
    device = lms.SimulatedDevice("1GiB")
    with device, lms.LMS("1GiB", smallest=1024, device=device) as support:
        hidden = data * weight
        total = hidden.sin() + hidden.cos() + hidden.view(-1).tanh().view(64, 64)
        (total + hidden.t().exp().t()).sum().backward()
        # The input, what sin and cos share, and the outputs of tanh and exp.
        assert support.report().blocks == 4


def test_storages_at_recycled_addresses() -> None:
    addresses: list[int] = []

    def make() -> tuple[nn.Module, Step]:
        torch.manual_seed(0)
        layer, data = nn.Linear(64, 64), batch()

        def step() -> Tensor:
            hidden = layer(data)
            loss = hidden.mean()
            for factor in range(12):
                part = (hidden * factor).exp()  # saved, and dead as soon as it was copied
                addresses.append(part.data_ptr())
                loss = loss + part.sigmoid().mean()
                del part
            loss.backward()
            return loss.detach()

        return layer, step

    plain = train(*make())
    addresses.clear()
    under = train(*make(), limit=int(0.8 * max(plain.peaks)))
    assert equal(plain, under)
    assert len(set(addresses)) < len(addresses)


def test_parameters_stay() -> None:
    model = nn.Sequential(nn.Linear(256, 256), nn.Linear(256, 256))
    data = torch.randn(4, 256)

    def step() -> Tensor:
        loss = model(data).sum()
        loss.backward()
        return loss.detach()

    device = lms.SimulatedDevice("1GiB")
    with device, lms.LMS("1GiB", smallest="100KiB", device=device) as support:
        step()
        with pytest.raises(lms.LMSError, match="no tensor of 100 KiB or more was saved"):
            support.report()
    assert device.moved == 0


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("what", ["input", "output", "view"])
def test_misuse_in_place_raises_as_without(what: str, kept: bool) -> None:
    def misuse() -> None:
        data = torch.randn(64, 64, requires_grad=True)
        hidden = data * 1
        if what == "output":
            hidden = result = hidden.exp()
        else:
            result = hidden * hidden
        (hidden if what != "view" else hidden[:3]).add_(1)
        result.sum().backward()

    text = "has been modified by an inplace operation"
    with pytest.raises(RuntimeError, match=text):
        misuse()
    device = lms.SimulatedDevice("1GiB")
    with device, lms.LMS("1GiB", smallest="1GiB" if kept else 1, device=device):
        with pytest.raises(lms.InplaceError, match=text):
            misuse()


def test_fine_in_place_is_fine() -> None:
    def make() -> tuple[nn.Module, Step]:
        model = nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.ReLU(True)) for _ in range(6)))
        torch.manual_seed(3)
        for weight in model.parameters():
            nn.init.normal_(weight, std=0.1)
        data = batch()

        def step() -> Tensor:
            loss = (model(data) + 1).add_(1).square().mean()
            loss.backward()
            return loss.detach()

        return model, step

    compare(make, 0.8)


def test_ddp_of_one_rank(tmp_path: object) -> None:
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)

    def make() -> tuple[nn.Module, Step]:
        model, data = mlp(), batch()
        parallel = DistributedDataParallel(model)

        def step() -> Tensor:
            loss = parallel(data).square().mean()
            loss.backward()
            return loss.detach()

        return model, step

    try:
        compare(make, 0.75)
    finally:
        dist.destroy_process_group()


def test_no_plan_names_the_shortfall() -> None:
    plain = train(*mlp_step())
    limit = int(0.3 * max(plain.peaks))
    device = lms.SimulatedDevice("1GiB")
    with pytest.raises(lms.NoPlanError, match=r"\d+ bytes .* short; raise the limit") as found:
        train(*mlp_step(), limit=limit, device=device)
    assert 0 < found.value.shortfall < max(plain.peaks) - limit
    assert isinstance(found.value.__cause__, torch.OutOfMemoryError)
