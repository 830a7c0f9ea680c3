"""The memory that the training under LMS allows itself, by the simulated device."""

from __future__ import annotations

import lms
import pytest
import torch
from ddl_ce_smoke import train_lms

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="for the simulated device")


def smallest() -> int:
    """The bytes that a tensor of one byte takes of the device."""
    with lms.SimulatedDevice() as device:
        tensor = torch.empty(1, dtype=torch.uint8)
        taken = device.used
        del tensor
    return taken


def test_the_limit_is_whole_pieces_of_the_allocator(monkeypatch: pytest.MonkeyPatch) -> None:
    assert smallest() == train_lms.PIECE
    monkeypatch.setattr(train_lms, "ROWS", 64)
    monkeypatch.setattr(train_lms, "STEPS", 1)
    _, demand, _ = train_lms.train(None)
    for piece in (train_lms.PIECE, 2 << 20):  # a GPU's
        monkeypatch.setattr(train_lms, "PIECE", piece)
        for odd in range(0, 3 * piece, piece // 2):
            limit = train_lms.limit_for(demand + odd)
            assert limit % piece == 0
            assert 0 <= limit - (demand + odd) / 2 < piece
    assert train_lms.limit_for(1) == 2 << 20
