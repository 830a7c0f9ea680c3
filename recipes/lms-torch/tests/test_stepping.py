"""An optimizer with paged state makes the same steps, in less memory."""

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
