"""Rarer reductions, types, groups and objects."""

from datetime import timedelta
from functools import reduce as fold

import torch
import torch.distributed as dist
from harness import RANK, SIZE, case, case_since, everyone, given, refused, same
from torch import Tensor

BITS = {
    dist.ReduceOp.BAND: torch.bitwise_and,
    dist.ReduceOp.BOR: torch.bitwise_or,
    dist.ReduceOp.BXOR: torch.bitwise_xor,
}
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]


@case
def bitwise_reductions() -> None:
    for op, function in BITS.items():
        for dtype in [*INTEGERS, torch.bool]:
            for size in (0, 1, 7, 1001):
                every = everyone(size, SIZE, dtype=dtype, top=120)
                expected = fold(function, every.unbind())
                tensor = given(RANK, size, SIZE, dtype=dtype, top=120)
                dist.all_reduce(tensor, op)
                same(tensor, expected)
            slanted = given(RANK, 6, 5, dtype=dtype, top=120)
            dist.all_reduce(slanted.t(), op)
            same(slanted, fold(function, everyone(6, 5, dtype=dtype, top=120).unbind()))
        scattered = torch.empty(3, dtype=torch.int32)
        dist.reduce_scatter_single(scattered, given(RANK, 3 * SIZE, dtype=torch.int32, top=99), op)
        every = everyone(3 * SIZE, dtype=torch.int32, top=99)
        same(scattered, fold(function, every.unbind()).chunk(SIZE)[RANK])
        tensor = given(RANK, 9, dtype=torch.int64, top=99)
        dist.reduce(tensor, SIZE - 1, op)
        every = everyone(9, dtype=torch.int64, top=99)
        same(tensor, fold(function, every.unbind()) if RANK == SIZE - 1 else every[RANK])
    refused(lambda: dist.all_reduce(torch.ones(2), dist.ReduceOp.BXOR), "integers")


@case
def bitwise_reductions_equal_gloo() -> None:
    gloo = dist.new_group(backend="gloo")
    for op in BITS:
        for dtype in INTEGERS[:2] + INTEGERS[3:]:
            ours, theirs = (given(RANK, 77, dtype=dtype, top=120) for _ in range(2))
            dist.all_reduce(ours, op)
            dist.all_reduce(theirs, op, group=gloo)
            same(ours, theirs)
    dist.destroy_process_group(gloo)


def sparse_of(rank: int) -> Tensor:
    """Of another number of entries on each rank, one of them twice."""
    generator = torch.Generator().manual_seed(rank)
    rows = torch.randint(0, 20, (rank + 1,), generator=generator)
    indices = torch.stack([torch.cat([rows, rows[:1]]), torch.full((rank + 2,), 1)])
    values = torch.randint(1, 9, (rank + 2, 3), generator=generator).double()
    return torch.sparse_coo_tensor(indices, values, (20, 2, 3))


@case
def sparse_sums() -> None:
    total = torch.stack([sparse_of(rank).to_dense() for rank in range(SIZE)]).sum(0)
    for op, expected in ((dist.ReduceOp.SUM, total), (dist.ReduceOp.AVG, total / SIZE)):
        tensor = sparse_of(RANK)
        dist.all_reduce(tensor, op)
        assert tensor.is_coalesced()
        same(tensor.to_dense(), expected)
    gloo = dist.new_group(backend="gloo")
    theirs = sparse_of(RANK)
    dist.all_reduce(theirs, group=gloo)
    same(theirs.to_dense(), total)
    dist.destroy_process_group(gloo)
    nothing = torch.sparse_coo_tensor(torch.empty(1, 0), torch.empty(0), (5,))
    dist.all_reduce(nothing)
    same(nothing.to_dense(), torch.zeros(5))


@case
def sparse_tensors_that_cannot_be_summed() -> None:
    refused(lambda: dist.all_reduce(sparse_of(RANK), dist.ReduceOp.MAX), "to_dense")
    refused(lambda: dist.broadcast(sparse_of(RANK), 0), "sparse")
    if SIZE > 1:
        other = torch.eye(4 + (RANK == 1)).to_sparse()
        refused(lambda: dist.all_reduce(other), "differ in shape or type")
    tensor = given(RANK, 3)
    dist.all_reduce(tensor)
    same(tensor, everyone(3).sum(0))


@case
def small_integers_truth_and_complex_numbers() -> None:
    """Reduced as the wide ones; complex numbers as pairs."""
    for dtype in (torch.complex64, torch.complex128):
        part = given(RANK, 2 * SIZE, dtype=torch.float64)
        mine = torch.complex(part, -part).to(dtype)
        total = everyone(2 * SIZE, dtype=torch.float64).sum(0)
        total = torch.complex(total, -total).to(dtype)
        output = torch.empty(2, dtype=dtype)
        dist.reduce_scatter_single(output, mine)
        same(output, total.chunk(SIZE)[RANK])
        average = mine.clone()
        dist.all_reduce(average, dist.ReduceOp.AVG)
        torch.testing.assert_close(average, total / SIZE)
        refused(lambda value=mine: dist.all_reduce(value, dist.ReduceOp.MAX), "complex")
    truth = torch.tensor([RANK == 0, True, False])
    for op, expected in (
        (dist.ReduceOp.SUM, [True, True, False]),
        (dist.ReduceOp.PRODUCT, [SIZE == 1, True, False]),
    ):
        tensor = truth.clone()
        dist.all_reduce(tensor, op)
        same(tensor, torch.tensor(expected))
    wraps = torch.full((3,), 200, dtype=torch.uint8)
    dist.all_reduce(wraps)
    same(wraps, torch.full((3,), 200 * SIZE % 256, dtype=torch.uint8))


@case
def subgroups() -> None:
    """Of a size, of a list, ordered otherwise, and made by their members alone."""
    if SIZE == 1:
        return
    mine, every = dist.new_subgroups(group_size=2)
    assert len(every) == SIZE // 2
    dist.all_reduce(tensor := torch.ones(1) * RANK, group=mine)
    same(tensor, torch.ones(1) * (2 * (RANK // 2 * 2) + 1))
    mine, _ = dist.new_subgroups_by_enumeration([[r, SIZE - 1 - r] for r in range(SIZE // 2)])
    dist.all_reduce(tensor := torch.ones(1) * RANK, group=mine)
    same(tensor, torch.ones(1) * (SIZE - 1))
    if RANK < 2:
        pair = dist.new_group([0, 1], use_local_synchronization=True)
        dist.all_reduce(tensor := torch.ones(1), group=pair)
        same(tensor, torch.ones(1) * 2)
    dist.barrier()


@case_since(2, 13)
def splitting_a_group() -> None:
    """`dist.split_group` itself refuses a machine without an accelerator; this is what it calls."""
    world = dist.group.WORLD
    halves = [list(range(SIZE))[::2], list(range(SIZE))[1::2]]
    members = halves[RANK % 2]
    half = world.split_group(members, timeout=timedelta(seconds=77))
    assert (half.rank(), half.size()) == (members.index(RANK), len(members))
    tensor = given(RANK, 3)
    half.allreduce([tensor]).wait()
    same(tensor, torch.stack([given(rank, 3) for rank in members]).sum(0))
    if len(members) == 2:
        last = half.split_group([1])
        assert (last is not None) == (half.rank() == 1)
    dist.all_reduce(tensor := given(RANK, 3))
    same(tensor, everyone(3).sum(0))


@case
def objects_of_all_kinds() -> None:
    mine = {"rank": RANK, "big": "x" * 10_000 * RANK, "tensor": given(RANK, 3)}
    gathered: list[object] | None = [None] * SIZE if RANK == 0 else None
    dist.gather_object(mine, gathered, dst=0)
    for rank, thing in enumerate(gathered or []):
        assert len(thing["big"]) == 10_000 * rank
        same(thing["tensor"], given(rank, 3))
    given_out = [f"for {rank}" * (rank + 1) for rank in range(SIZE)] if RANK == 0 else None
    received: list[object] = [None]
    dist.scatter_object_list(received, given_out, src=0)
    assert received == [f"for {RANK}" * (RANK + 1)]
    group = dist.new_group(list(range(SIZE)))
    things = [{"from": RANK}, None, RANK] if RANK == SIZE - 1 else [None] * 3
    dist.broadcast_object_list(things, src=SIZE - 1, group=group)
    assert things == [{"from": SIZE - 1}, None, SIZE - 1]
    if SIZE > 1 and RANK < 2:
        if RANK == 0:
            dist.send_object_list([mine, "and"], dst=1)
        else:
            arrived: list[object] = [None, None]
            assert dist.recv_object_list(arrived, src=0) == 0
            assert (arrived[0]["rank"], arrived[1]) == (0, "and")
    dist.destroy_process_group(group)
