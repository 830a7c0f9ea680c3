"""A training that goes on from its checkpoint on another number of ranks."""

import re
from pathlib import Path

import pytest

from conftest import Run


def losses(run: Run, ranks: int, folder: Path, steps: int) -> list[float]:
    folder.mkdir(exist_ok=True)
    result = run(ranks, "reshard.py", str(folder), str(steps))
    assert result.returncode == 0, result.stderr[-4000:]
    return [float(number) for number in re.findall(r"loss (\S+)", result.stdout)]


def test_training_goes_on_with_more_and_with_fewer_ranks(ddlrun: Run, tmp_path: Path) -> None:
    expected = losses(ddlrun, 1, tmp_path / "alone", 6)
    assert expected[-1] < expected[0]
    found = []
    for ranks in (4, 1, 3):
        found += losses(ddlrun, ranks, tmp_path / "moved", 2)
    assert found == pytest.approx(expected, rel=1e-9)
