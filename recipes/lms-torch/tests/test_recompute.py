"""Layers computed again where that is faster: the same bits, the limit kept, and what refuses."""

import copy
import pickle
from collections.abc import Callable

import lms
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lms.paging.device import TransferRates
from lms.planning import recompute_policy
from lms.planning.plan import Plan
from lms.planning.planner import make_plan
from lms.planning.recompute_costs import recompute_costs, without_saved
from models import SPEED, Run, Step, batch, equal, train
from torch import Tensor, nn

#: A bus so slow that copies cannot hide.
SLOW = lms.Speed(arithmetic=2e12, memory=200e9, d2h=10e9, h2d=10e9, launch=1e-6)


class Block(nn.Module):
    """Two linear layers with random numbers and a normalisation's statistics between them."""

    def __init__(self, width: int, normalise: bool = True) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm = nn.BatchNorm1d(4 * width) if normalise else nn.Identity()
        self.drop = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(self.drop(nn.functional.gelu(self.norm(self.up(x)))))


class Net(nn.Module):
    """Some blocks in a list, and a head."""

    def __init__(self, blocks: int = 8, width: int = 64) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))
        self.head = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(x)


Made = tuple[nn.Module, Step]


def make(model: nn.Module | None = None, rows: tuple[int, ...] = (512,)) -> Made:
    model = model or Net()
    data = iter([batch(n) for n in rows] * 40)
    torch.manual_seed(2)

    def step() -> Tensor:
        loss = model(next(data)).square().mean()
        loss.backward()
        return loss.detach()

    return model, step


def both(
    prepare: Callable[[], Made], share: float, steps: int = 12, speed: lms.Speed = SLOW
) -> tuple[Run, Run, Run]:
    """In-core, under LMS, and under LMS that may compute again: the same bits below the limit."""
    runs, states = [], []
    for again in (None, False, True):
        model, step = prepare()
        limit = None if again is None else int(share * max(runs[0].peaks))
        device = lms.SimulatedDevice("64GiB", speed)
        recomputed = lms.recompute(model) if again else None
        runs.append(train(model, step, limit=limit, steps=steps, device=device))
        if recomputed:
            recomputed.remove()
        states.append(model.state_dict())
    for run, state in zip(runs[1:], states[1:], strict=True):
        assert equal(runs[0], run)
        assert all(map(torch.equal, states[0].values(), state.values()))
        assert max(run.peaks) <= int(share * max(runs[0].peaks))
    return runs[0], runs[1], runs[2]


@pytest.mark.parametrize("share", [0.75, 0.5])
def test_faster_on_a_slow_bus(share: float) -> None:
    _, copied, mixed = both(make, share)
    assert copied.report is not None
    assert mixed.report is not None
    assert 0 < len(mixed.report.again) <= mixed.report.layers == 8
    assert mixed.seconds[-1] < 0.9 * copied.seconds[-1]
    assert mixed.report.moved < copied.report.moved
    # What computing again costs was foreseen, and is in the plan's prediction.
    assert mixed.seconds[-1] == pytest.approx(mixed.report.predicted, rel=0.02)
    assert mixed.report.computing - copied.report.computing == pytest.approx(
        mixed.report.again_seconds, rel=0.25
    )
    assert f"computed again  {len(mixed.report.again)} of 8 layers, " in str(mixed.report)


def test_nothing_is_computed_again_where_copies_hide() -> None:
    _, copied, mixed = both(make, 0.9, speed=SPEED)
    assert mixed.report is not None
    assert mixed.report.again == ()
    assert mixed.seconds[-1] == pytest.approx(copied.seconds[-1], rel=1e-9)


def test_the_prediction_without_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the trace of one iteration says of another comes true."""
    monkeypatch.setattr(recompute_policy, "choose_layers", lambda *_: frozenset())
    model, step = make()
    plain = train(model, step, steps=3)
    limit, rates = int(0.6 * max(plain.peaks)), TransferRates(SLOW.d2h, SLOW.h2d, SLOW.launch)
    traces = []
    for again in (False, True):
        model, step = make()
        device = lms.SimulatedDevice("64GiB", SLOW)
        recomputed = lms.recompute(list(model.blocks))
        with device, lms.LMS(limit, smallest=1024, device=device) as support:
            engine = support.engine
            for layer in engine.layers.layers.values():
                layer.recomputed_shapes = {(512, 64)} if again else set()
            optimizer = torch.optim.Adam(model.parameters())
            for _ in range(6):
                optimizer.zero_grad()
                step()
                optimizer.step()
            engine.finish()
            traces.append(engine.plans.entries[0][0])
        recomputed.remove()
    first, real = traces
    assert len(recompute_costs(first)) == 8
    assert recompute_costs(real) == {}
    told = without_saved(first, range(8))
    assert sum(told.seconds) == pytest.approx(sum(real.seconds), rel=0.05)
    plans: list[Plan] = [make_plan(trace, limit, rates, 1024) for trace in (told, real)]
    assert plans[0].seconds == pytest.approx(plans[1].seconds, rel=0.05)
    assert real.demand() <= told.demand() <= 1.25 * real.demand()  # never too little


def test_changing_shapes_and_accumulation() -> None:
    def prepare() -> Made:
        model, once = make(rows=(512, 256, 384))
        return model, lambda: once() + once()

    _, _, mixed = both(prepare, 0.6, steps=24)
    assert mixed.report is not None
    assert mixed.report.again


def test_with_paged_parameters() -> None:
    plain = train(*make(Net(6)), steps=12)
    model, step = make(Net(6))
    recomputed = lms.recompute(model)
    device = lms.SimulatedDevice("64GiB", SLOW)
    limit = int(0.6 * max(plain.peaks))
    under = train(model, step, limit=limit, steps=12, device=device, page=True)
    recomputed.remove()
    assert equal(plain, under)
    assert max(under.peaks) <= limit


class Counting(nn.Module):
    """A layer whose result depends on a buffer that it changes."""

    def __init__(self, in_place: bool) -> None:
        super().__init__()
        self.block, self.in_place = Block(64, normalise=False), in_place
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        if self.in_place:
            self.calls += 1
        else:
            self.calls = self.calls + 1
        return self.block(x) * self.calls


@pytest.mark.parametrize("in_place", [True, False])
def test_layers_that_change_buffers_are_left_alone(in_place: bool) -> None:
    def prepare() -> Made:
        torch.manual_seed(0)
        return make(nn.Sequential(*(Counting(in_place) for _ in range(6))))

    _, _, mixed = both(prepare, 0.6)
    assert mixed.report is not None
    assert mixed.report.again == ()


def test_a_choice_that_proves_slower_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    # As if computing again took no time: all are chosen that may be, which is slower on a fast bus.
    monkeypatch.setattr(
        recompute_policy, "choose_layers", lambda *given: frozenset(given[-2][: given[-1]])
    )
    _, copied, mixed = both(make, 0.9, steps=24, speed=SPEED)
    assert mixed.report is not None
    assert mixed.report.again == ()
    assert mixed.seconds[5] > 1.05 * copied.seconds[5]  # the first that follows a plan
    assert mixed.seconds[-1] == pytest.approx(copied.seconds[-1], rel=1e-6)


def test_taken_back_while_lms_is_on() -> None:
    plain = train(*make(), steps=16)
    model, step = make()
    recomputed = lms.recompute(model)
    device, limit = lms.SimulatedDevice("64GiB", SLOW), int(0.6 * max(plain.peaks))
    optimizer, losses = torch.optim.Adam(model.parameters()), []
    with device, lms.LMS(limit, smallest=1024, device=device) as support:
        for number in range(16):
            if number == 10:
                assert support.report().again
                recomputed.remove()
            optimizer.zero_grad()
            losses.append(step())
            optimizer.step()
        assert support.report().again == ()
    assert all(map(torch.equal, plain.losses, losses))
    assert device.highest <= limit


def test_a_copy_of_the_model_is_no_part_of_it() -> None:
    model, step = make()
    recomputed = lms.recompute(model)
    device = lms.SimulatedDevice("64GiB", SLOW)
    with device, lms.LMS("64MiB", smallest=1024, device=device):
        step()
        twins = [copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
        model.eval()
        with torch.no_grad():
            for twin in twins:
                assert torch.equal(twin.eval()(batch()), model(batch()))
    recomputed.remove()
    assert "forward" not in vars(model.blocks[0])
    assert set(model.state_dict()) == set(Net().state_dict())


def test_planned_without_a_device() -> None:
    def prepare(again: bool) -> Callable[[], Callable[[], None]]:
        def make_step() -> Callable[[], None]:
            model, data = Net(8, 4096), torch.randn(8192, 4096)
            if again:
                lms.recompute(model)
            optimizer = torch.optim.SGD(model.parameters())

            def step() -> None:
                optimizer.zero_grad()
                model(data).square().mean().backward()
                optimizer.step()

            return step

        return make_step

    demand = lms.plan(prepare(False), "64GiB").demand
    slow = lms.Speed(d2h=5e9, h2d=5e9)
    copied = lms.plan(prepare(False), int(0.7 * demand), speed=slow)
    mixed = lms.plan(prepare(True), int(0.7 * demand), speed=slow)
    assert 0 < len(mixed.again) <= 8
    assert mixed.predicted < copied.predicted
    again = lms.plan(prepare(False), int(0.7 * demand), speed=slow)
    assert again.layers == 0, "layers of a model that ended with its plan are forgotten"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (lambda: nn.Linear(2, 2), "this Linear has no ModuleList or Sequential whose items"),
        (lambda: [], "there are no layers in the list"),
        (lambda: [torch.relu], "layer 0 is a builtin_function_or_method, not a torch.nn.Module"),
        (lambda: [nn.Linear(2, 2)] * 2, "are the same layer"),
        (lambda: (lambda b: [b, b.up])(Block(2)), "layer 1 is inside layer 0; give one of them"),
        (lambda: [torch.compile(Block(2))], "is under torch.compile, which decides itself"),
    ],
)
def test_mistakes(given: Callable[[], object], says: str) -> None:
    with pytest.raises(lms.LMSError) as error:
        lms.recompute(given())  # type: ignore[arg-type]
    assert says in str(error.value)


def test_layers_that_talk_to_other_ranks_are_left_alone() -> None:
    layers = [
        nn.Sequential(nn.Linear(2, 2), norm(2)) for norm in (nn.SyncBatchNorm, nn.BatchNorm1d)
    ]
    recomputed = lms.recompute(layers)
    assert [bool(layer.excluded) for layer in recomputed.layers] == [True, False]
    recomputed.remove()


def test_twice() -> None:
    model = Net(2)
    recomputed = lms.recompute(model)
    with pytest.raises(lms.LMSError, match=r"may compute blocks\.0 \(Block\) again already"):
        lms.recompute(model)
    recomputed.remove()
    lms.recompute(model).remove()


@settings(deadline=None, max_examples=25, suppress_health_check=list(HealthCheck))
@given(
    widths=st.lists(st.sampled_from([32, 64]), min_size=2, max_size=8),
    share=st.floats(0.4, 1.0),
    rows=st.lists(st.sampled_from([128, 256, 512]), min_size=1, max_size=2),
    bus=st.sampled_from([5e9, 20e9, 50e9]),
)
def test_random_models(widths: list[int], share: float, rows: list[int], bus: float) -> None:
    def prepare() -> Made:
        torch.manual_seed(0)
        parts = [Block(64, normalise=width == 32) for width in widths]
        return make(nn.Sequential(*parts), tuple(rows))

    speed = lms.Speed(arithmetic=2e12, memory=200e9, d2h=bus, h2d=bus, launch=1e-6)
    try:
        both(prepare, share, steps=8, speed=speed)
    except lms.NoPlanError as error:
        assert error.shortfall > 0  # noqa: PT017
