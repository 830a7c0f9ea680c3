"""Operations that reduce."""

import torch
import torch.distributed as dist
from harness import (
    FLOATS,
    NUMBERS,
    RANK,
    REDUCTIONS,
    SIZE,
    SIZES,
    SMALL,
    case,
    everyone,
    given,
    oracle,
    same,
)
from torch import nn


@case
def all_reduce() -> None:
    for dtype in [*NUMBERS, *SMALL]:
        for size in SIZES:
            for op in REDUCTIONS:
                tensor = given(RANK, size, dtype=dtype)
                dist.all_reduce(tensor, op)
                same(tensor, oracle(everyone(size, dtype=dtype), op))


@case
def all_reduce_average() -> None:
    for dtype in FLOATS:
        tensor = given(RANK, 1000, dtype=dtype)
        dist.all_reduce(tensor, dist.ReduceOp.AVG)
        same(tensor, oracle(everyone(1000, dtype=dtype), dist.ReduceOp.AVG))


@case
def all_reduce_equals_gloo() -> None:
    gloo = dist.new_group(backend="gloo")
    for dtype in (torch.float32, torch.float64, torch.float16, torch.int32, torch.int64):
        for op in REDUCTIONS:
            ours, theirs = (given(RANK, 777, dtype=dtype) for _ in range(2))
            dist.all_reduce(ours, op)
            dist.all_reduce(theirs, op, group=gloo)
            same(ours, theirs)


@case
def all_reduce_of_truth() -> None:
    tensor = torch.tensor([RANK == 0, True, False, RANK != 0])
    some, every = tensor.clone(), tensor.clone()
    dist.all_reduce(some, dist.ReduceOp.MAX)
    dist.all_reduce(every, dist.ReduceOp.MIN)
    same(some, torch.tensor([True, True, False, SIZE > 1]))
    same(every, torch.tensor([SIZE == 1, True, False, False]))


@case
def all_reduce_of_complex_numbers() -> None:
    tensor = torch.complex(given(RANK, 50), -given(RANK, 50))
    dist.all_reduce(tensor)
    total = everyone(50).sum(0)
    same(tensor, torch.complex(total, -total))


@case
def all_reduce_of_strange_layouts() -> None:
    whole = given(RANK, 40, 30)
    total = everyone(40, 30).sum(0)
    for view in (lambda t: t.t(), lambda t: t[::2, 3:7], lambda t: t[5], lambda t: t[0, 0]):
        tensor = whole.clone()
        dist.all_reduce(view(tensor))
        expected = whole.clone()
        view(expected).copy_(view(total))
        same(tensor, expected)
    image = given(RANK, 2, 3, 4, 5).to(memory_format=torch.channels_last)
    dist.all_reduce(image)
    same(image.contiguous(), everyone(2, 3, 4, 5).sum(0))


@case
def all_reduce_of_a_parameter() -> None:
    parameter = nn.Parameter(given(RANK, 5))
    dist.all_reduce(parameter)
    same(parameter.detach(), everyone(5).sum(0))


@case
def all_reduce_coalesced() -> None:
    tensors = [given(RANK, n) for n in (1, 5, 1000)]
    with dist.distributed_c10d._coalescing_manager():
        for tensor in tensors:
            dist.all_reduce(tensor)
    for tensor in tensors:
        same(tensor, everyone(*tensor.shape).sum(0))


@case
def reduce() -> None:
    for root in range(SIZE):
        for dtype in (torch.float32, torch.int16):
            tensor = given(RANK, 100, dtype=dtype)
            dist.reduce(tensor, root, dist.ReduceOp.SUM)
            kept = given(RANK, 100, dtype=dtype)
            total = oracle(everyone(100, dtype=dtype), dist.ReduceOp.SUM)
            same(tensor, total if root == RANK else kept)


@case
def reduce_scatter() -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.uint8):
        pieces = list(given(RANK, SIZE, 6, 7, dtype=dtype).unbind(0))
        output = torch.empty(6, 7, dtype=dtype)
        dist.reduce_scatter(output, pieces)
        same(output, oracle(everyone(SIZE, 6, 7, dtype=dtype), dist.ReduceOp.SUM)[RANK])


@case
def reduce_scatter_of_unequal_sizes() -> None:
    for dtype in (torch.float32, torch.int16, torch.complex64):
        parts = [given(RANK + 5 * n, n, 3, dtype=dtype) for n in range(SIZE)]
        to_us = [given(rank + 5 * RANK, RANK, 3, dtype=dtype) for rank in range(SIZE)]
        output = torch.empty(3, RANK, dtype=dtype).t()
        dist.reduce_scatter(output, parts)
        same(output.contiguous(), torch.stack(to_us).sum(0).to(dtype))
    mean = torch.empty(RANK)
    dist.reduce_scatter(mean, [torch.ones(n) for n in range(SIZE)], dist.ReduceOp.AVG)
    same(mean, torch.ones(RANK))


@case
def reduce_scatter_single() -> None:
    whole = given(RANK, SIZE * 5, 3)
    total = everyone(SIZE * 5, 3).sum(0)
    output = torch.empty(5, 3)
    dist.reduce_scatter_single(output, whole)
    same(output, total.view(SIZE, 5, 3)[RANK])
    slanted = torch.empty(3, 5).t()
    dist.reduce_scatter_single(slanted, whole, dist.ReduceOp.AVG)
    same(slanted.contiguous(), total.view(SIZE, 5, 3)[RANK] / SIZE)


@case
def reduce_scatter_single_coalesced() -> None:
    outputs = [torch.empty(n) for n in (2, 9)]
    with dist.distributed_c10d._coalescing_manager():
        for output in outputs:
            dist.reduce_scatter_single(output, given(RANK, SIZE * len(output)))
    for output in outputs:
        same(output, everyone(SIZE * len(output)).sum(0).view(SIZE, -1)[RANK])
