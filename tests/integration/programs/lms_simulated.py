"""Some steps with Large Model Support and without, on a GPU: the same bits within the limit."""

from __future__ import annotations

import sys

import lms
import torch
from torch import nn


def steps(limit: int) -> tuple[list[torch.Tensor], int]:
    """Gradients, and the most that torch's allocator had reserved; limit 0: none."""
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(256, 256), nn.GELU()) for _ in range(12)]
    model = nn.Sequential(*layers).cuda()
    data = torch.randn(16384, 256, device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    if limit:
        lms.enable(limit)  # measures copies first, of more memory than such a small limit has
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    for _ in range(5):
        optimizer.zero_grad()
        model(data).square().mean().backward()
        optimizer.step()
    if limit:
        report = lms.report()
        assert report is not None
        assert report.moved > 0
        assert report.missed == 0
        lms.disable()
    gradients = [p.grad.cpu() for p in model.parameters() if p.grad is not None]
    return gradients, torch.cuda.max_memory_reserved()


plain, demand = steps(0)
for share in map(float, sys.argv[1:]):
    moved, peak = steps(int(share * demand))
    assert all(map(torch.equal, plain, moved)), share
    assert peak <= share * demand, (share, peak, demand)
print("all well")
