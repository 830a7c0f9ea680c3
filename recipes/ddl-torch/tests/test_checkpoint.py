"""A training that goes on from its checkpoint on another number of ranks."""

import re
from pathlib import Path

import pytest
import torch
from rank_cases import Run
from reshard import begin


def alone(steps: int) -> list[float]:
    """The losses of one process, without ddl."""
    model, inputs, targets = begin()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_training_goes_on_with_more_and_with_fewer_ranks(ddlrun: Run, tmp_path: Path) -> None:
    found: list[float] = []
    for ranks in (2, 4, 3):
        result = ddlrun(ranks, "reshard.py", str(tmp_path), "2")
        assert result.returncode == 0, result.stderr[-4000:]
        found += [float(number) for number in re.findall(r"loss (\S+)", result.stdout)]
    assert found == pytest.approx(alone(6), rel=1e-9)
    assert found[-1] < found[0]
