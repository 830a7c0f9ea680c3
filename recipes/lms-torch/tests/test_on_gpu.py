"""LMS on a real GPU: the bits, the limit, and the reclaim hook."""

import lms
import pytest
import torch
from torch import nn


def why_not() -> str:
    return "" if torch.cuda.is_available() else "torch sees no GPU"


pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "-")


def steps(limit: int | None) -> tuple[list[torch.Tensor], int, lms.Report | None]:
    """Gradients of some steps, peak reserved memory, and the report."""
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(2048, 2048), nn.GELU()) for _ in range(24)]
    model = nn.Sequential(*layers).cuda()
    data = torch.randn(16384, 2048, device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    if limit:
        lms.enable(limit)
    report = None
    try:
        for _ in range(6):
            optimizer.zero_grad()
            model(data).square().mean().backward()
            optimizer.step()
        if limit:
            report = lms.report()
    finally:
        if limit:
            lms.disable()
    gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    return gradients, torch.cuda.max_memory_reserved(), report


@pytest.mark.parametrize("share", [0.8, 0.5])
def test_bits_and_limit(share: float) -> None:
    plain, demand, _ = steps(None)
    moved, peak, report = steps(int(share * demand))
    assert all(map(torch.equal, plain, moved))
    assert peak <= share * demand
    assert report is not None
    assert report.moved > 0
    assert report.missed == 0


def test_limit_above_the_card() -> None:
    with pytest.raises(lms.LimitError, match="has only"):
        lms.enable(1 << 50)


def test_the_programs_own_fraction_stays() -> None:
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(0.5)
    try:
        with lms.LMS("4GiB"):
            pass
        assert torch.cuda.get_per_process_memory_fraction() == 0.5
        with pytest.raises(lms.LimitError, match=r"this program has set itself 0\.5 of GPU 0"):
            lms.enable(int(0.7 * total))
        with lms.LMS() as support:
            assert support.engine is not None
            assert support.engine.limit <= total / 2
        assert torch.cuda.get_per_process_memory_fraction() == 0.5
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
