"""What the cases stand on: ranks' inputs, comparisons, and the list of cases.

Every rank knows what every other rank gives: `given(rank)` is a function of the rank. Values are
small whole numbers, so that sums are exact in every type, whatever their order.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from torch import Tensor

# PyTorch 2.13's names of what older ones call otherwise.
for module, new, old in (
    (dist, "all_gather_single", "all_gather_into_tensor"),
    (dist, "reduce_scatter_single", "reduce_scatter_tensor"),
    (funcol, "all_gather_single", "all_gather_tensor"),
    (funcol, "all_gather_single_autograd", "all_gather_tensor_autograd"),
    (funcol, "all_gather_single_coalesced", "all_gather_into_tensor_coalesced"),
    (funcol, "reduce_scatter_single", "reduce_scatter_tensor"),
    (funcol, "reduce_scatter_single_autograd", "reduce_scatter_tensor_autograd"),
    (funcol, "reduce_scatter_single_coalesced", "reduce_scatter_tensor_coalesced"),
):
    if not hasattr(module, new):
        setattr(module, new, getattr(module, old))

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
CASES: list[Callable[[], None]] = []
FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
NUMBERS = [*FLOATS, torch.int32, torch.int64]
SMALL = [torch.uint8, torch.int8, torch.int16]
SIZES = [0, 1, 3, 1000, 100_003]
#: PyTorch 2.6's fully_shard records events of streams, which its CPUs do not have.
FSDP_ON_CPUS = (2, 7)


def case(function: Callable[[], None]) -> Callable[[], None]:
    CASES.append(function)
    return function


def case_since(*version: int) -> Callable[[Callable[[], None]], None]:
    """A case of what older versions of PyTorch have not."""
    return case if torch_has(*version) else lambda function: None


def torch_has(*version: int) -> bool:
    """Whether this PyTorch is of that version at least."""
    return tuple(map(int, torch.__version__.split(".")[:2])) >= version


def given(rank: int, *shape: int, dtype: torch.dtype = torch.float32, top: int = 4) -> Tensor:
    generator = torch.Generator().manual_seed(1000 + rank)
    return torch.randint(1, top, shape, generator=generator).to(dtype)


def everyone(*shape: int, dtype: torch.dtype = torch.float32, top: int = 4) -> Tensor:
    return torch.stack([given(r, *shape, dtype=dtype, top=top) for r in range(SIZE)])


def same(result: Tensor, expected: Tensor) -> None:
    assert result.dtype == expected.dtype, (result.dtype, expected.dtype)
    assert torch.equal(result, expected), (result.flatten()[:8], expected.flatten()[:8])


def refused(operation: Callable[[], object], words: str) -> None:
    try:
        operation()
    except (ValueError, RuntimeError) as error:
        if words.lower() not in str(error).lower():
            raise
    else:
        raise AssertionError(f"was not refused: {words}")


REDUCTIONS: dict[dist.ReduceOp.RedOpType, Callable[[Tensor], Tensor]] = {
    dist.ReduceOp.SUM: lambda all_: all_.sum(0),
    dist.ReduceOp.PRODUCT: lambda all_: all_.prod(0),
    dist.ReduceOp.MIN: lambda all_: all_.amin(0),
    dist.ReduceOp.MAX: lambda all_: all_.amax(0),
}


def oracle(all_: Tensor, op: dist.ReduceOp.RedOpType) -> Tensor:
    dtype = all_.dtype
    wide = all_.double() if dtype.is_floating_point else all_.long()
    if op == dist.ReduceOp.AVG:
        return (wide.sum(0) / SIZE).to(dtype)
    return REDUCTIONS[op](wide).to(dtype)
