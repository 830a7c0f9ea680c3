"""A limit below the floor: the error says a limit that suffices, and what takes the memory."""

from __future__ import annotations

import re

import lms
import pytest
import torch
from models import SPEED, Run, mlp_step, train
from torch import nn


class RoomyDevice(lms.SimulatedDevice):
    """Plans a share of a limit, as a GPU does, and enforces none: each error is the planner's."""

    def cap(self, limit: int) -> int:
        return int(limit * 0.94)

    def limit_for(self, planned: int) -> int:
        return int(planned / 0.94) + 2


def run(limit: int | None, momentum: float, kind: type[lms.SimulatedDevice] = RoomyDevice) -> Run:
    model, step = mlp_step()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=momentum)
    device = kind("64GiB", SPEED)
    return train(model, step, limit=limit, optimizer=optimizer, device=device, steps=6)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("share", [0.2, 0.3])
def test_the_limit_that_is_named_suffices(momentum: float, share: float) -> None:
    """Also for the steps to come, which begin with the optimizer's state."""
    limit = int(share * max(run(None, momentum).peaks))
    with pytest.raises(lms.NoPlanError) as found:
        run(limit, momentum)
    named = re.search(r"raise the limit to (\d+) bytes", str(found.value))
    assert named is not None
    assert int(named[1]) == limit + found.value.shortfall
    run(int(named[1]), momentum)
    with pytest.raises(lms.NoPlanError):  # it is about the lowest
        run(int(0.9 * int(named[1])), momentum)


@pytest.mark.parametrize("kind", [RoomyDevice, lms.SimulatedDevice])
def test_what_takes_the_memory_is_named(kind: type[lms.SimulatedDevice]) -> None:
    """Whether the planner finds the limit too low, or the device while all leaves that can."""
    limit = int(0.3 * max(run(None, 0.9).peaks))
    with pytest.raises(lms.NoPlanError) as found:
        run(limit, 0.9, kind)
    text = str(found.value)
    assert f"within {limit} bytes" in text
    assert "that the iteration began with (parameters, gradients, the optimizer's state" in text
    assert "by lms.page_parameters(...) and lms.page_optimizer(...)" in text
    assert re.search(r"[23] saved tensors in use at once \(float32 \(512, 256\)", text), text
    assert "by a smaller batch, or by torch.utils.checkpoint for the layers there" in text


def test_a_tensor_that_cannot_leave_is_named() -> None:
    device, weight = RoomyDevice("1GiB"), nn.Parameter(torch.ones(64, 64))
    with device, lms.LMS("4MiB", smallest=1, device=device) as support:
        held = weight * torch.ones(1024, 64, 64)  # which the program holds to the end
        held.sin().sum().backward()
        with pytest.raises(lms.NoPlanError, match=r"float32 \(1024, 64, 64\)"):
            support.report()
