"""An optimizer with paged state makes the same steps, in less memory."""

import copy
import gc
import pickle
import weakref

import lms
import pytest
import torch
from models import SPEED, batch, mlp
from torch import nn
from torch.optim import SGD, Adam, AdamW, Optimizer, RMSprop


def steps(kind: type[Optimizer], bucket: str | None, **options: float) -> tuple[nn.Module, int]:
    """Trains a little; the model, and bytes in use while nothing runs."""
    model, device = mlp(4), lms.SimulatedDevice("1GiB", SPEED)
    optimizer = kind(model.parameters(), lr=0.01, **options)  # type: ignore[call-arg]
    paged = None
    if bucket:
        paged = lms.page_optimizer(optimizer, bucket=bucket, smallest=1024, device=device)
    with device:
        for _ in range(3):
            optimizer.zero_grad()
            model(batch(64)).square().mean().backward()
            optimizer.step()
        optimizer.zero_grad()
        used = device.used
    if paged:
        paged.remove()
    return model, used


@pytest.mark.parametrize("bucket", ["1GiB", "100KiB", "1KiB"])
@pytest.mark.parametrize("kind", [Adam, AdamW, RMSprop])
def test_same_steps_in_less_memory(kind: type[Optimizer], bucket: str) -> None:
    plain, much = steps(kind, None)
    paged, little = steps(kind, bucket)
    assert all(map(torch.equal, plain.parameters(), paged.parameters()))
    weights = sum(p.numel() * 4 for p in plain.parameters())
    assert much - little > 0.9 * weights


def test_momentum() -> None:
    plain, paged = steps(SGD, None, momentum=0.9), steps(SGD, "50KiB", momentum=0.9)
    assert all(map(torch.equal, plain[0].parameters(), paged[0].parameters()))


def test_state_dict_is_whole() -> None:
    def state(bucket: str | None) -> dict:
        model, device = mlp(2), lms.SimulatedDevice("1GiB", SPEED)
        optimizer = Adam(model.parameters())
        if bucket:
            lms.page_optimizer(optimizer, bucket=bucket, smallest=1, device=device)
        with device:
            model(batch(8)).sum().backward()
            optimizer.step()
            return optimizer.state_dict()["state"]

    plain, paged = state(None), state("20KiB")
    assert plain.keys() == paged.keys()
    for key in plain:
        assert torch.equal(plain[key]["exp_avg"], paged[key]["exp_avg"])
        assert torch.equal(plain[key]["exp_avg_sq"], paged[key]["exp_avg_sq"])


def test_others_are_refused() -> None:
    optimizer = torch.optim.LBFGS(mlp(1).parameters())
    with pytest.raises(lms.LMSError, match="the state of LBFGS cannot be paged"):
        lms.page_optimizer(optimizer, device=lms.SimulatedDevice())


def test_no_closure() -> None:
    model, device = mlp(1), lms.SimulatedDevice()
    optimizer = Adam(model.parameters())
    lms.page_optimizer(optimizer, device=device)
    with device, pytest.raises(lms.LMSError, match="takes no closure"):
        optimizer.step(lambda: model(batch(2)).sum())


def flat_state(page: bool) -> list[torch.Tensor]:
    """Trains with state that lies in one buffer, as fused trainers and some loaders keep it."""
    model, device = mlp(1), lms.SimulatedDevice("1GiB", SPEED)
    optimizer = Adam(model.parameters(), lr=0.01)
    with device:
        for step in range(4):
            optimizer.zero_grad()
            model(batch(8)).square().mean().backward()
            optimizer.step()
            if step:
                continue
            states = [optimizer.state[p] for p in model.parameters()]
            flat = torch.cat([state["exp_avg"].flatten() for state in states])
            parts = flat.split([state["exp_avg"].numel() for state in states])
            for state, part in zip(states, parts, strict=True):
                state["exp_avg"] = part.view_as(state["exp_avg"])
            alone = torch.stack([states[0]["exp_avg_sq"]] * 2)
            states[0]["exp_avg_sq"] = alone[1]  # at an offset, in a storage of its own
            del alone, parts, part
            if page:
                lms.page_optimizer(optimizer, bucket="40KiB", smallest=1024, device=device)
    return [*model.parameters(), flat]


def test_state_that_lies_in_larger_storages() -> None:
    assert all(map(torch.equal, flat_state(False), flat_state(True)))


def trained(bucket: str = "40KiB") -> tuple[nn.Module, Adam, lms.SimulatedDevice]:
    """A model after one step, its optimizer with paged state, and the device."""
    model, device = mlp(2), lms.SimulatedDevice("1GiB", SPEED)
    optimizer = Adam(model.parameters(), lr=0.01)
    lms.page_optimizer(optimizer, bucket=bucket, smallest=1024, device=device)
    with device:
        model(batch(8)).square().mean().backward()
        optimizer.step()
    return model, optimizer, device


def test_a_kept_state_dict_stays_as_it_was() -> None:
    _, optimizer, device = trained()
    with device:
        used = device.used
        kept = optimizer.state_dict()
        assert device.used == used  # the next iteration has the memory that it had
        before = copy.deepcopy(kept)
        optimizer.step()
    for key, state in before["state"].items():
        assert all(torch.equal(value, kept["state"][key][name]) for name, value in state.items())


def test_state_that_is_loaded_leaves_at_once() -> None:
    model, optimizer, device = trained()
    with device:
        used = device.used
        optimizer.load_state_dict(optimizer.state_dict())
        assert device.used <= used
        optimizer.step()
    plain = mlp(2)
    other = Adam(plain.parameters(), lr=0.01)
    plain(batch(8)).square().mean().backward()
    other.step()
    other.step()
    assert all(map(torch.equal, plain.parameters(), model.parameters()))


@pytest.mark.parametrize("way", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_a_copy_of_the_optimizer_is_whole(way: object) -> None:
    _, optimizer, device = trained()
    with device:
        expected = list(optimizer.state_dict()["state"].values())
        copied = list(way(optimizer).state.values())  # type: ignore[operator]
    assert len(copied) == len(expected) > 0
    for one, other in zip(copied, expected, strict=True):
        assert all(torch.equal(one[name], value) for name, value in other.items())


def test_state_that_is_away_says_so() -> None:
    model, optimizer, _ = trained()
    away = optimizer.state[next(model.parameters())]["exp_avg"]
    for use in (lambda: torch.norm(away), lambda: away.sum(), lambda: torch.ones(1).mul(away)):
        with pytest.raises(lms.LMSError, match=r"take the copy that optimizer.state_dict\(\) has"):
            use()


def test_hooks_of_the_program_run_once_and_see_all_parameters() -> None:
    model, optimizer, device = trained()
    seen: list[int] = []

    def hook(one: Optimizer, *_: object) -> None:
        seen.append(len(one.param_groups[0]["params"]))

    optimizer.register_step_pre_hook(hook)
    optimizer.register_step_post_hook(hook)
    with device:
        optimizer.step()
    assert seen == [len(list(model.parameters()))] * 2


def test_twice_is_refused() -> None:
    _, optimizer, device = trained()
    with pytest.raises(lms.LMSError, match="the state of this Adam is paged already"):
        lms.page_optimizer(optimizer, device=device)


def test_an_optimizer_can_die() -> None:
    _, optimizer, _ = trained()
    gone = weakref.ref(optimizer)
    del optimizer
    gc.collect()
    assert gone() is None
