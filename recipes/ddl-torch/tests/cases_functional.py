"""Functional collectives and torch.distributed.nn: results, and gradients across ranks.

The loss on rank r is the sum of its result times r's own weights, `given(100 + r)`; what a rank
gave then has the gradient that all ranks' losses together have in it.
"""

import warnings

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
import torch.distributed.nn.functional as nnf
from harness import RANK, SIZE, case, case_since, everyone, given, same
from torch import Tensor


def world() -> dist.ProcessGroup:
    return dist.group.WORLD


def weights(rank: int, *shape: int) -> Tensor:
    return given(100 + rank, *shape)


def all_weights(*shape: int) -> Tensor:
    return torch.stack([weights(rank, *shape) for rank in range(SIZE)])


def gradient(result: Tensor, mine: Tensor) -> Tensor:
    (result * weights(RANK, *result.shape)).sum().backward()
    return mine.grad


@case
def functional_results() -> None:
    mine, kept = given(RANK, 2 * SIZE, 3), given(RANK, 2 * SIZE, 3)
    every = everyone(2 * SIZE, 3)
    for op, result in (("sum", every.sum(0)), ("max", every.amax(0)), ("avg", every.mean(0))):
        same(funcol.all_reduce(mine, op, world()).wait(), result)
        same(funcol.reduce_scatter_single(mine, op, 0, world()).wait(), result.chunk(SIZE)[RANK])
    same(
        funcol.reduce_scatter_single(mine.t(), "sum", 1, world()).wait(),
        every.sum(0).chunk(SIZE)[RANK].t(),
    )
    same(funcol.all_gather_single(mine, 0, world()).wait(), every.flatten(0, 1))
    same(funcol.all_gather_single(mine, 1, world()) + 0, torch.cat(every.unbind(), 1))
    same(funcol.broadcast(mine, SIZE - 1, world()).wait(), given(SIZE - 1, 2 * SIZE, 3))
    exchanged = torch.cat([one.chunk(SIZE)[RANK] for one in every])
    same(funcol.all_to_all_single(mine, None, None, world()).wait(), exchanged)
    after = [(rank + 1) % SIZE for rank in range(SIZE)]
    turned = funcol.permute_tensor(mine.flatten(), after, world())
    same(turned.wait(), every[(RANK - 1) % SIZE].flatten())
    same(mine, kept)


@case
def functional_results_in_place_and_of_lists() -> None:
    mine = [given(RANK, SIZE), given(RANK, 2 * SIZE, 3)]
    every = [everyone(*one.shape) for one in mine]
    reduced = funcol.all_reduce_coalesced(mine, "sum", world())
    gathered = funcol.all_gather_single_coalesced(mine, world())
    scattered = funcol.reduce_scatter_single_coalesced(list(mine), "sum", [0, 0], world())
    for n in range(2):
        same(reduced[n].wait(), every[n].sum(0))
        same(gathered[n].wait(), every[n].flatten(0, 1))
        same(scattered[n].wait(), every[n].sum(0).chunk(SIZE)[RANK])
    name = world().group_name
    tensor = given(RANK, 5)
    under_way = torch.ops._c10d_functional.all_reduce_(tensor, "sum", name)
    assert under_way.data_ptr() == tensor.data_ptr()
    same(torch.ops._c10d_functional.wait_tensor(under_way), everyone(5).sum(0))


@case_since(2, 7)
def functional_gradients() -> None:
    every_weight = all_weights(SIZE * 2, 3)
    mine = given(RANK, 2 * SIZE, 3).requires_grad_()
    same(gradient(funcol.all_reduce(mine, "sum", world()), mine), every_weight.sum(0))

    mine = given(RANK, 2, 3).requires_grad_()
    result = funcol.all_gather_single_autograd(mine, 0, world())
    same(gradient(result, mine), every_weight.sum(0).chunk(SIZE)[RANK])

    mine = given(RANK, 2 * SIZE, 3).requires_grad_()
    result = funcol.reduce_scatter_single_autograd(mine, "sum", 0, world())
    same(gradient(result, mine), all_weights(2, 3).flatten(0, 1))

    # Rank a gives a + b + 1 rows to rank b.
    counts = [RANK + other + 1 for other in range(SIZE)]
    mine = given(RANK, sum(counts), 3).requires_grad_()
    result = funcol.all_to_all_single_autograd(mine, counts, counts, world())
    expected = []
    for other in range(SIZE):
        theirs = [other + third + 1 for third in range(SIZE)]
        expected.append(weights(other, sum(theirs), 3).split(theirs)[RANK])
    same(gradient(result, mine), torch.cat(expected))


@case_since(2, 7)
def gradients_in_groups() -> None:
    """The group of this rank's parity."""
    members = [rank for rank in range(SIZE) if rank % 2 == RANK % 2]
    for parity in range(min(2, SIZE)):
        ranks = [rank for rank in range(SIZE) if rank % 2 == parity]
        made = dist.new_group(ranks)
        group = made if RANK in ranks else None
        if group is not None:
            mine = given(RANK, 4).requires_grad_()
            total = torch.stack([weights(rank, 4) for rank in members]).sum(0)
            same(gradient(funcol.all_reduce(mine, "sum", group), mine), total)
            dist.destroy_process_group(group)


@case
def functional_collectives_in_a_traced_program() -> None:
    """Once is enough: the tracing takes most of the time."""
    if SIZE != 2:
        return
    name = world().group_name

    def program(tensor: Tensor) -> Tensor:
        return funcol.all_reduce(tensor * 2, "sum", name) + funcol.all_gather_single(
            tensor, 0, name
        ).sum(0)

    traced = torch.compile(program, backend="aot_eager", fullgraph=True)
    mine = given(RANK, 3, 4).requires_grad_()
    result = traced(mine)
    same(result.detach(), 2 * everyone(3, 4).sum(0) + everyone(3, 4).flatten(0, 1).sum(0))


@case
def nn_functional() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated in favour of functional collectives
        check_nn_reductions()
        check_nn_movements()


def check_nn_reductions() -> None:
    mine = given(RANK, 4).requires_grad_()
    same(gradient(nnf.all_reduce(mine), mine), all_weights(4).sum(0))
    mine = given(RANK, 4).requires_grad_()
    result = nnf.reduce(mine, 0)
    if RANK == 0:
        same(result.detach(), everyone(4).sum(0))
    same(gradient(result, mine), weights(0, 4))
    pieces = [given(RANK, 2).requires_grad_() for _ in range(SIZE)]
    output = nnf.reduce_scatter(torch.empty(2), pieces)
    same(output.detach(), everyone(2).sum(0))
    (output * weights(RANK, 2)).sum().backward()
    for rank, piece in enumerate(pieces):
        same(piece.grad, weights(rank, 2))


def check_nn_movements() -> None:
    mine = given(RANK, 4).requires_grad_()
    result = nnf.broadcast(mine, 0)
    found = gradient(result, mine)
    same(result.detach(), given(0, 4))
    same(found, all_weights(4).sum(0) if RANK == 0 else torch.zeros(4))
    mine = given(RANK, 4).requires_grad_()
    result = torch.stack(nnf.all_gather(mine))
    same(gradient(result, mine), all_weights(SIZE, 4).sum(0)[RANK])
    mine = given(RANK, 2 * SIZE).requires_grad_()
    result = nnf.all_to_all_single(torch.empty(2 * SIZE), mine)
    expected = torch.cat([weights(rank, 2 * SIZE).chunk(SIZE)[RANK] for rank in range(SIZE)])
    same(gradient(result, mine), expected)
    pieces = [given(RANK, 3).requires_grad_() for _ in range(SIZE)]
    result = torch.stack(nnf.all_to_all([torch.empty(3) for _ in range(SIZE)], pieces))
    same(result.detach(), everyone(3))
    (result * weights(RANK, SIZE, 3)).sum().backward()
    for rank, piece in enumerate(pieces):
        same(piece.grad, weights(rank, SIZE, 3)[RANK])
    mine = given(RANK, 3).requires_grad_()
    result = torch.stack(nnf.gather(mine, 0))
    (result * (weights(0, SIZE, 3) if RANK == 0 else 0)).sum().backward()
    same(mine.grad, weights(0, SIZE, 3)[RANK])
    pieces = [given(rank, 3).requires_grad_() for rank in range(SIZE)]
    output = nnf.scatter(pieces, 0)
    same(output.detach(), given(RANK, 3))
    (output * weights(RANK, 3)).sum().backward()
    if RANK == 0:
        for rank, piece in enumerate(pieces):
            same(piece.grad, weights(rank, 3))
