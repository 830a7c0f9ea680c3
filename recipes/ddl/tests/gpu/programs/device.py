"""What the programs share: this rank, its GPU, and tensors there."""

from __future__ import annotations

import ddl
import torch

ddl.init()
RANK, SIZE = ddl.rank(), ddl.size()
GPU = torch.device("cuda", RANK % torch.cuda.device_count())
torch.cuda.set_device(GPU)

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INTEGERS = (torch.int32, torch.int64)
# Nothing, one, odd, what slices and chunks of 4 KiB are cut at, several chunks.
COUNTS = (0, 1, 2, 63, 1001, 1024, 4096, 4097, 20011)


def numbers(rank: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    """In host memory; sums and products over a few ranks are exact in every type."""
    return (torch.arange(count) % 3 + rank % 2 + 1).to(dtype)


def every(count: int, dtype: torch.dtype) -> torch.Tensor:
    """The numbers of all ranks, a row each."""
    return torch.stack([numbers(rank, count, dtype) for rank in range(SIZE)])


def expect(got: torch.Tensor, wanted: torch.Tensor, what: str) -> None:
    """Fail unless `got` is on the GPU and has these values."""
    assert got.device == GPU, f"{what}: on {got.device}"
    if not torch.equal(got.cpu(), wanted):
        raise AssertionError(f"rank {RANK}: {what}: got {got.cpu()}, wanted {wanted}")
