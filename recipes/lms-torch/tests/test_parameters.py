"""Parameters that are paged: the bits of in-core, below limits that activations cannot reach."""

from __future__ import annotations

import copy
import io
from collections.abc import Iterator

import lms
import pytest
import torch
from lms import session
from models import SPEED, Step, batch, equal, train
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

KIB = 1024


@pytest.fixture(autouse=True)
def paged_no_more() -> Iterator[None]:
    """What a test pages, the next must not."""
    yield
    for paged in list(session._paged_models):
        lms.keep_parameters(paged)


def heavy(layers: int = 10, width: int = 96) -> tuple[nn.Module, Step]:
    """Much weight, few activations."""
    torch.manual_seed(0)
    model = nn.Sequential(
        *(nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(layers))
    )
    data = batch(32, width)

    def step() -> Tensor:
        loss = model(data).square().mean()
        loss.backward()
        return loss.detach()

    return model, step


def weights(model: nn.Module) -> int:
    return sum(p.numel() * p.element_size() for p in model.parameters())


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05)


@pytest.mark.parametrize("share", [1.1, 0.9, 0.8, 0.7])
def test_bits_and_limit_where_activations_do_not_suffice(share: float) -> None:
    (model, step), (again, step_again) = heavy(), heavy()
    plain = train(model, step, optimizer=sgd(model), steps=6)
    limit = int(share * max(plain.peaks))
    under = train(again, step_again, optimizer=sgd(again), limit=limit, steps=6, page=True)
    assert equal(plain, under)
    assert all(map(torch.equal, model.parameters(), again.parameters()))
    assert max(under.peaks) <= limit
    report = under.report
    assert report is not None
    assert report.missed == 0
    assert (report.paged > 0) == (share < 1)
    assert report.predicted == pytest.approx(report.measured, rel=1e-2)


def test_without_it_there_is_no_plan() -> None:
    model, step = heavy()
    limit = int(0.7 * max(train(*heavy(), optimizer=None, steps=6).peaks))
    with pytest.raises(lms.NoPlanError):
        train(model, step, limit=limit, steps=6)


def state(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [t for s in optimizer.state.values() for t in s.values() if isinstance(t, Tensor)]


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.SGD])
@pytest.mark.parametrize("buckets", [True, False])
def test_steps_in_place(kind: type[torch.optim.Optimizer], buckets: bool) -> None:
    """With the optimizer's state paged too, and with an optimizer that knows nothing of it."""

    def run(page: bool) -> tuple[nn.Module, int]:
        device = lms.SimulatedDevice("1GiB", SPEED)
        model, step = heavy()
        optimizer = kind(model.parameters(), lr=0.01)  # type: ignore[call-arg]
        if page:
            lms.page_parameters(model, smallest=1024)
            if buckets:
                lms.page_optimizer(optimizer, bucket="40KiB", smallest=1024, device=device)
        limit = weights(model) * (3 if buckets else 5)
        with device, lms.LMS(limit if page else "1GiB", smallest=1024, device=device):
            for _ in range(4):
                optimizer.zero_grad()
                step()
                optimizer.step()
            used = device.used
        return model, used

    plain, much = run(False)
    paged, little = run(True)
    assert all(map(torch.equal, plain.parameters(), paged.parameters()))
    assert little <= much


class Under:
    """A model under LMS whose parameters are all away."""

    def __init__(self, model: nn.Module, limit: str = "64MiB") -> None:
        self.device, self.model = lms.SimulatedDevice("1GiB", SPEED), model
        self.support = lms.LMS(limit, smallest=1024, device=self.device)

    def __enter__(self) -> lms.SimulatedDevice:
        self.device.__enter__()
        for parameter in self.model.parameters():
            self.device.adopt(parameter)
        self.paged = lms.page_parameters(self.model, smallest=1024)
        self.support.__enter__()
        return self.device

    def __exit__(self, *error: object) -> None:
        self.support.__exit__()
        lms.keep_parameters(self.paged)
        self.device.__exit__(None, None, None)


def test_they_leave_at_once_and_come_back() -> None:
    model, _ = heavy()
    before = [p.detach().clone() for p in model.parameters()]
    with Under(model) as device:
        assert device.used < weights(model) / 20
        assert model[0][0].weight.shape == (96, 96)
    assert all(type(p) is nn.Parameter for p in model.parameters())
    assert all(map(torch.equal, before, model.parameters()))


def test_evaluation_has_one_of_them_at_a_time() -> None:
    model, _ = heavy()
    data = batch(8, 96)
    with torch.no_grad():
        before = model(data)
    with Under(model) as device, torch.no_grad():
        after = model(data)
        assert device.highest < weights(model) * 1.1  # when they left
        device.highest = device.used
        model(data)
        assert device.highest < weights(model) / 2
    assert torch.equal(before, after)


def test_state_dict() -> None:
    model, _ = heavy()
    plain = {name: value.clone() for name, value in model.state_dict().items()}
    with Under(model) as device:
        device.highest = device.used
        found = model.state_dict()
        assert device.highest < weights(model) / 2
        file = io.BytesIO()
        torch.save(found, file)
        assert list(found) == list(plain)
        assert all(torch.equal(found[name], plain[name]) for name in plain)
        file.seek(0)
        other = {name: value + 1 for name, value in torch.load(file).items()}
        model.load_state_dict(other)
        again = model.state_dict()
        assert all(torch.equal(again[name], plain[name] + 1) for name in plain)
        copies = [name for name in plain if name.endswith("weight")]
        assert all(torch.equal(found[name], plain[name]) for name in copies)
        vars_ = model.state_dict(keep_vars=True)
        assert all(vars_[name] is p for name, p in model.named_parameters())
    assert all(torch.equal(p, plain[name] + 1) for name, p in model.named_parameters())


def test_copies_of_the_model() -> None:
    model, _ = heavy(3)
    with Under(model):
        twin = copy.deepcopy(model)
        file = io.BytesIO()
        torch.save(model, file)
    file.seek(0)
    read = torch.load(file, weights_only=False)
    for other in (twin, read):
        assert all(map(torch.equal, model.parameters(), other.parameters()))
        other(batch(4, 96)).sum().backward()


def test_whatever_is_done_with_them() -> None:
    model, _ = heavy(4)
    with torch.no_grad():
        whole = sum(p.square().sum() for p in model.parameters())
    mean = [p.detach() * 0.5 for p in model.parameters()]
    with Under(model):
        assert torch.equal(sum(p.square().sum() for p in model.parameters()), whole)
        with torch.no_grad():
            assert torch.equal(
                torch.stack([p.norm() for p in model.parameters()]).norm(), whole**0.5
            )
            for parameter, half in zip(model.parameters(), mean, strict=True):
                parameter.lerp_(torch.zeros_like(parameter), 0.5)
                assert torch.equal(parameter, half)
            torch._foreach_mul_(list(model.parameters()), 4.0)
            for parameter in model.parameters():
                parameter.data.mul_(0.5)  # which its version does not tell
        kept = model[0][0].weight.t()  # as long as this view lives, the parameter stays
        with torch.no_grad():
            model(batch(4, 96))
            model(batch(4, 96))
        assert torch.equal(kept.t(), mean[0] * 2)
        del kept
        model(batch(4, 96)).sum().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    assert all(torch.equal(p, half * 2) for p, half in zip(model.parameters(), mean, strict=True))


def test_misuse_in_place_raises() -> None:
    model, _ = heavy(3)
    data = batch(8, 96)

    def misuse() -> None:
        loss = model(data).sum()
        with torch.no_grad():
            model[2][0].weight.add_(1)
        loss.backward()

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        misuse()
    with Under(model), pytest.raises(lms.InplaceError, match="modified by an inplace operation"):
        misuse()

    def replace() -> None:
        loss = model(data).sum()
        model[2][0].weight.data = torch.zeros(96, 96)
        loss.backward()

    with Under(model), pytest.raises(lms.InplaceError, match=r"paged parameter .* was replaced"):
        replace()


def test_data_that_was_replaced_is_used() -> None:
    model, _ = heavy(2)
    with Under(model):
        model[0][0].weight.data = torch.zeros(96, 96)
        model[0][0].bias.data.zero_()
        loss = model(batch(8, 96)).sum()
        loss.backward()
    assert model[0][0].weight.eq(0).all()
    assert model[0][0].weight.grad is not None


class Attentive(nn.Module):
    """Weights that are used by the module around them, twice, in one call, or never."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.embed = nn.Embedding(200, width)
        self.mixed = nn.MultiheadAttention(width, 4, batch_first=True)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(4))
        self.scale = nn.Parameter(torch.randn(width, width))
        self.unused = nn.Parameter(torch.randn(width, width))
        self.frozen = nn.Linear(width, width).requires_grad_(False)
        self.head = nn.Linear(width, 200, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, words: Tensor) -> Tensor:
        x = self.embed(words)
        x = x + self.mixed(x, x, x, need_weights=False)[0]
        for layer in self.layers:
            x = x + layer(layer(x).relu()) @ self.scale
        x = checkpoint(self.frozen, x, use_reentrant=False)
        x = checkpoint(self.layers[1], x, use_reentrant=True)
        return self.head(torch.nn.functional.layer_norm(x, (64,)))


def attentive() -> tuple[nn.Module, Step]:
    model = Attentive()
    words = torch.randint(0, 200, (2, 16), generator=torch.Generator().manual_seed(3))

    def step() -> Tensor:
        loss = nn.functional.cross_entropy(model(words).flatten(0, 1), words.flatten())
        loss.backward()
        return loss.detach()

    return model, step


@pytest.mark.parametrize("share", [0.95, 0.85, 0.8])
def test_weights_that_are_used_in_many_ways(share: float) -> None:
    (model, step), (again, step_again) = attentive(), attentive()
    plain = train(model, step, optimizer=sgd(model), steps=6)
    limit = int(share * max(plain.peaks))
    under = train(again, step_again, optimizer=sgd(again), limit=limit, steps=6, page=True)
    assert equal(plain, under)
    assert all(map(torch.equal, model.parameters(), again.parameters()))
    assert max(under.peaks) <= limit


def test_accumulation_and_evaluation_between() -> None:
    def make() -> tuple[nn.Module, Step]:
        model, _ = heavy()
        data = batch(64, 96)

        def step() -> Tensor:
            for part in data.chunk(4):
                model(part).square().mean().backward()
            with torch.no_grad():
                return model(data).square().mean()

        return model, step

    (model, step), (again, step_again) = make(), make()
    plain = train(model, step, optimizer=sgd(model), steps=6)
    limit = int(0.75 * max(plain.peaks))
    under = train(again, step_again, optimizer=sgd(again), limit=limit, steps=6, page=True)
    assert equal(plain, under)
    assert max(under.peaks) <= limit


def test_off_and_on_again() -> None:
    model, step = heavy()
    plain = train(*heavy(), steps=1).gradients[0]
    paged = lms.page_parameters(model, smallest=1024)
    device = lms.SimulatedDevice("1GiB", SPEED)
    with device:
        for _ in range(2):
            with lms.LMS(2 * weights(model), smallest=1024, device=device):
                for _ in range(2):
                    model.zero_grad()
                    step()
                    with device.aside():
                        assert all(map(torch.equal, plain, (p.grad for p in model.parameters())))
            assert all(type(p) is nn.Parameter for p in model.parameters())
            assert device.used > weights(model)
    lms.keep_parameters(paged)


def test_what_cannot_be_paged() -> None:
    model, _ = heavy(2)
    with pytest.raises(lms.LMSError, match=r"this OptimizedModule cannot be paged: it is under"):
        lms.page_parameters(torch.compile(model, backend="eager"))
    inside = nn.Sequential(model)
    model.compile(backend="eager")
    with pytest.raises(lms.LMSError, match=r"the parameters of 0 \(Sequential\) cannot be paged"):
        lms.page_parameters(inside)
    lazy = nn.LazyLinear(4)
    with pytest.raises(lms.LMSError, match="weight cannot be paged: it is a UninitializedParam"):
        lms.page_parameters(lazy)
    model, _ = heavy(2)
    with Under(model), pytest.raises(lms.LMSError, match="it is a Paged already"):
        lms.page_parameters(model, smallest=1024)


def test_planning_without_numbers() -> None:
    def make_step() -> object:
        layers = [nn.Sequential(nn.Linear(8192, 8192), nn.GELU()) for _ in range(16)]
        model = nn.Sequential(*layers)
        lms.page_parameters(model)
        optimizer = torch.optim.Adam(model.parameters())
        lms.page_optimizer(optimizer)
        data = torch.randn(2048, 8192)

        def step() -> None:
            model(data).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()

        return step

    report = lms.plan(make_step, "8GiB")  # 4 GiB of parameters, as much of gradients
    assert report.demand > 8 << 30 >= report.predicted_peak
    assert report.paged > 0
    assert "parameters" in str(report)
