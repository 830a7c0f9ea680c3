"""Operations that move data and leave it as it is."""

import warnings

import torch
import torch.distributed as dist
from harness import NUMBERS, RANK, SIZE, SIZES, SMALL, case, everyone, given, same

ALL_TYPES = [*NUMBERS, *SMALL, torch.bool, torch.complex64, torch.float8_e4m3fn]


@case
def broadcast() -> None:
    for root in range(SIZE):
        for dtype in ALL_TYPES:
            tensor = given(RANK, 33, dtype=torch.float32).to(dtype)
            dist.broadcast(tensor, root)
            assert tensor.view(torch.uint8).equal(given(root, 33).to(dtype).view(torch.uint8))
        slanted = given(RANK, 8, 9).t()
        dist.broadcast(slanted, root)
        same(slanted.contiguous(), given(root, 8, 9).t().contiguous())


@case
def all_gather() -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.int8, torch.bool):
        for size in SIZES:
            outputs = [torch.empty(size, dtype=dtype) for _ in range(SIZE)]
            dist.all_gather(outputs, given(RANK, size, dtype=dtype))
            for rank, output in enumerate(outputs):
                same(output, given(rank, size, dtype=dtype))


@case
def all_gather_single() -> None:
    output = torch.empty(SIZE * 4, 5)
    dist.all_gather_single(output, given(RANK, 4, 5))
    same(output, everyone(4, 5).view(-1, 5))
    slanted = torch.empty(5, SIZE * 4).t()
    dist.all_gather_single(slanted, given(RANK, 5, 4).t())
    same(slanted.contiguous(), everyone(5, 4).transpose(1, 2).reshape(-1, 5))


@case
def all_gather_coalesced() -> None:
    inputs = [given(RANK, 3), given(RANK, 2, 2)]
    outputs = [[torch.empty_like(t) for t in inputs] for _ in range(SIZE)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is deprecated
        dist.all_gather_coalesced(outputs, inputs)
    for rank, (first, second) in enumerate(outputs):
        same(first, given(rank, 3))
        same(second, given(rank, 2, 2))
    gathered = [torch.empty(SIZE * n) for n in (3, 8)]
    with dist.distributed_c10d._coalescing_manager():
        for tensor in gathered:
            dist.all_gather_single(tensor, given(RANK, len(tensor) // SIZE))
    for tensor in gathered:
        same(tensor, everyone(len(tensor) // SIZE).flatten())


@case
def gather_and_scatter() -> None:
    for root in range(SIZE):
        mine = given(RANK, 3, 4)
        gathered = [torch.empty(3, 4) for _ in range(SIZE)] if root == RANK else None
        dist.gather(mine, gathered, root)
        for rank, tensor in enumerate(gathered or []):
            same(tensor, given(rank, 3, 4))
        output = torch.empty(4, 3).t()
        pieces = [given(rank + 7, 3, 4) for rank in range(SIZE)] if root == RANK else None
        dist.scatter(output, pieces, root)
        same(output.contiguous(), given(RANK + 7, 3, 4))


@case
def all_to_all_single() -> None:
    output = torch.empty(SIZE * 2, 3)
    dist.all_to_all_single(output, given(RANK, SIZE * 2, 3))
    same(output, torch.cat([given(r, SIZE * 2, 3)[2 * RANK : 2 * RANK + 2] for r in range(SIZE)]))
    # Rank a sends a + b rows to rank b: unequal, and none from 0 to 0.
    give = [RANK + other for other in range(SIZE)]
    source = torch.cat([torch.full((n, 2), float(10 * RANK + b)) for b, n in enumerate(give)])
    output = torch.empty(2, sum(give)).t()
    dist.all_to_all_single(output, source, give, give)
    expected = [torch.full((n, 2), float(10 * a + RANK)) for a, n in enumerate(give)]
    same(output.contiguous(), torch.cat(expected))


@case
def all_to_all() -> None:
    inputs = [torch.full((RANK + 1, other + 1), float(10 * RANK + other)) for other in range(SIZE)]
    outputs = [torch.empty(other + 1, RANK + 1) for other in range(SIZE)]
    dist.all_to_all(outputs, inputs)
    for other, output in enumerate(outputs):
        same(output, torch.full((other + 1, RANK + 1), float(10 * other + RANK)))


@case
def send_and_receive() -> None:
    """All send first, and more than any buffer holds: this would hang if sends were in order."""
    if SIZE == 1:
        return
    after, before = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    big = 1_000_000
    received = torch.empty(2, big).t()
    operations = [
        dist.P2POp(dist.isend, given(RANK, big, 2), after),
        dist.P2POp(dist.irecv, received, before),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    same(received.contiguous(), given(before, big, 2))


@case
def messages_are_told_apart_by_tags() -> None:
    if SIZE == 1 or RANK > 1:
        return
    if RANK == 0:
        sends = [dist.isend(given(tag, 500_000), 1, tag=tag) for tag in range(3)]
        for work in sends:
            work.wait()
    else:
        for tag in (2, 0, 1):
            tensor = torch.empty(500_000)
            dist.recv(tensor, 0, tag=tag)
            same(tensor, given(tag, 500_000))


@case
def objects() -> None:
    found: list[object] = [None] * SIZE
    dist.all_gather_object(found, {"rank": RANK, "text": "x" * RANK})
    assert found == [{"rank": r, "text": "x" * r} for r in range(SIZE)]
    things = [("from", 0), 1] if RANK == 0 else [None, None]
    dist.broadcast_object_list(things, 0)
    assert things == [("from", 0), 1]
