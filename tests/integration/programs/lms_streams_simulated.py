"""Two branches on a stream each, with Large Model Support and without, on a GPU: the same bits."""

from __future__ import annotations

import sys

import lms
import torch
from torch import nn


def steps(limit: int) -> tuple[list[torch.Tensor], int]:
    """Gradients, and the most that torch's allocator had reserved; limit 0: none."""
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(256, 256), nn.GELU()).cuda() for _ in range(8)]
    parameters = [parameter for layer in layers for parameter in layer.parameters()]
    data = torch.randn(16384, 256, device="cuda")
    streams = [torch.cuda.Stream() for _ in range(2)]
    default = torch.cuda.current_stream()
    if limit:
        lms.enable(limit)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    for _ in range(4):
        for parameter in parameters:
            parameter.grad = None
        ends = [data, data]
        for stream in streams:
            stream.wait_stream(default)
        for number, layer in enumerate(layers):
            with torch.cuda.stream(streams[number % 2]):
                ends[number % 2] = layer(ends[number % 2])
        for stream, end in zip(streams, ends, strict=True):
            default.wait_stream(stream)
            end.record_stream(default)
        (ends[0].square().mean() + ends[1].square().mean()).backward()
        torch.cuda.synchronize()
    if limit:
        report = lms.report()
        assert report is not None
        assert report.moved > 0
        lms.disable()
    gradients = [p.grad.cpu() for p in parameters if p.grad is not None]
    return gradients, torch.cuda.max_memory_reserved()


plain, demand = steps(0)
for share in map(float, sys.argv[1:]):
    moved, _ = steps(int(share * demand))
    assert all(map(torch.equal, plain, moved)), share
print("all well")
