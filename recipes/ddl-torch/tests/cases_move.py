"""Operations that move data and leave it as it is."""

import warnings
from pathlib import Path

import torch
import torch.distributed as dist
from harness import NUMBERS, RANK, SIZE, SIZES, SMALL, case, everyone, given, refused, same

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
def lists_of_unequal_sizes() -> None:
    """Rank r's tensor has r rows and one: torch documents it, and gloo refuses most of it."""
    for dtype in (torch.float32, torch.int8):
        outputs = [torch.empty(2, rank + 1, dtype=dtype).t() for rank in range(SIZE)]
        dist.all_gather(outputs, given(RANK, RANK + 1, 2, dtype=dtype))
        for rank, output in enumerate(outputs):
            same(output.contiguous(), given(rank, rank + 1, 2, dtype=dtype))
    for root in range(SIZE):
        gathered = [torch.empty(r + 1, 4) for r in range(SIZE)] if root == RANK else None
        dist.gather(given(RANK, RANK + 1, 4), gathered, root)
        for rank, tensor in enumerate(gathered or []):
            same(tensor, given(rank, rank + 1, 4))
        parts = [given(r + 7, 3 * r) for r in range(SIZE)] if root == RANK else None
        received = torch.empty(3 * RANK)
        dist.scatter(received, parts, root)
        same(received, given(RANK + 7, 3 * RANK))


@case
def lists_that_do_not_fit_this_rank_are_refused() -> None:
    outputs = [torch.empty(3 + (rank == RANK)) for rank in range(SIZE)]
    refused(lambda: dist.all_gather(outputs, torch.ones(3)), "this rank's tensor has 3 elements")
    outputs[RANK] = torch.empty(3, dtype=torch.int32)
    world = dist.group.WORLD  # torch's own function looks at the types first
    refused(lambda: world.allgather([outputs], [torch.ones(3)]), "all must be of one type")


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
def tags_are_whole_numbers_of_31_bits() -> None:
    """MPI has room for fewer bits: messages with the last tags go another way."""
    if SIZE == 1 or RANK > 1:
        return
    tags = [0, 32768, 10**6, 2**29, 2**30 + 5, 2**31 - 1]
    if RANK == 0:
        sends = [dist.isend(given(n, 70_000 * (n % 2)), 1, tag=t) for n, t in enumerate(tags)]
        for work in sends:
            work.wait()
    else:
        for n, tag in reversed(list(enumerate(tags))):
            tensor = torch.empty(70_000 * (n % 2))
            assert dist.recv(tensor, 0, tag=tag) == 0
            same(tensor, given(n, 70_000 * (n % 2)))


@case
def a_tag_for_every_step_costs_no_thread() -> None:
    if SIZE == 1 or RANK > 1:
        return
    tensor = torch.zeros(3)
    before = len(list(Path("/proc/self/task").iterdir()))
    for step in range(300):
        if RANK == 0:
            dist.send(tensor + step, 1, tag=step)
        else:
            dist.recv(tensor, 0, tag=step)
            assert tensor[0] == step
    assert len(list(Path("/proc/self/task").iterdir())) <= before + 3


@case
def receive_from_any_rank() -> None:
    """With tags that MPI has room for and with others; each rank's messages keep their order."""
    for tag in (0, 40_000, 2**31 - 2):
        if RANK == 0:
            seen = []
            for _ in range(2 * (SIZE - 1)):
                tensor = torch.empty(9)
                sender = dist.recv(tensor, tag=tag)
                same(tensor, given(100 * sender + seen.count(sender), 9))
                seen.append(sender)
            assert sorted(seen) == sorted([*range(1, SIZE)] * 2)
        else:
            for n in range(2):
                dist.send(given(100 * RANK + n, 9), 0, tag=tag)
    if SIZE > 1 and RANK == 0:
        group_works = [dist.irecv(torch.empty(4), tag=7) for _ in range(SIZE - 1)]
        for work in group_works:
            work.wait()
        assert sorted(work._source_rank() for work in group_works) == list(range(1, SIZE))
    elif SIZE > 1:
        dist.isend(given(RANK, 4), 0, tag=7).wait()


@case
def objects() -> None:
    found: list[object] = [None] * SIZE
    dist.all_gather_object(found, {"rank": RANK, "text": "x" * RANK})
    assert found == [{"rank": r, "text": "x" * r} for r in range(SIZE)]
    things = [("from", 0), 1] if RANK == 0 else [None, None]
    dist.broadcast_object_list(things, 0)
    assert things == [("from", 0), 1]
