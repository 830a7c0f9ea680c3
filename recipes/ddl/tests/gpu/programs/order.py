"""A collective comes after what its stream was given, and its result is there for all streams."""

from __future__ import annotations

import ddl
import torch
from device import GPU, SIZE, expect

COUNT = 1 << 20
other = torch.cuda.Stream(GPU)
big = torch.randn(4096, 4096, device=GPU)

for stream in (torch.cuda.current_stream(GPU), other):
    for is_async in (False, True):
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            x = torch.zeros(COUNT, device=GPU)
            for _ in range(30):  # tens of milliseconds, after which x is filled
                big = big @ big
                big /= big.norm()
            x.fill_(1)
            assert not stream.query(), "the GPU was done too early for this test"
            result = ddl.allreduce_async(x).wait() if is_async else ddl.allreduce(x)
        # Read on another stream than it was made on.
        third = torch.cuda.Stream(GPU)
        with torch.cuda.stream(third):
            total = result.clone()
        third.synchronize()
        expect(total, torch.full((COUNT,), float(SIZE)), f"on {stream}, asynchronous: {is_async}")
ddl.finalize()
