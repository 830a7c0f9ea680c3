"""What an operation hands back: works, futures, and the coalescing manager."""

import threading
from datetime import timedelta

import torch
import torch.distributed as dist
from harness import RANK, SIZE, case, everyone, given, refused, same, torch_has
from torch.distributed.distributed_c10d import _coalescing_manager


def world() -> dist.ProcessGroup:
    return dist.group.WORLD


@case
def works_tell_how_they_are() -> None:
    tensor = given(RANK, 7)
    work = dist.all_reduce(tensor, async_op=True)
    assert work.wait(timedelta(seconds=200))
    assert work.is_completed()
    assert work.is_success()
    if torch_has(2, 7):  # 2.6 cannot tell Python of one
        assert work.exception() is None
    same(work.result()[0], everyone(7).sum(0))
    assert work.get_future().done()


@case
def a_wait_gives_up_in_time() -> None:
    """The first rank comes last: the others wait, give up, and wait again."""
    group, again = dist.new_group(), dist.new_group()
    tensor = given(RANK, 3)
    if RANK == 0 and SIZE > 1:
        dist.barrier(again)
    work = dist.all_reduce(tensor, group=group, async_op=True)
    if RANK != 0:
        refused(lambda: work.wait(timedelta(milliseconds=20)), "timed out")
        assert not work.is_completed()
        dist.barrier(again)
    assert work.wait()
    same(tensor, everyone(3).sum(0))
    dist.destroy_process_group(group)
    dist.destroy_process_group(again)


@case
def what_hangs_on_a_future_may_communicate() -> None:
    """As PowerSGD's hook does: it waits, in `then`, for another operation of the same group."""
    tensor = given(RANK, 5)

    def again(future: torch.futures.Future[list[torch.Tensor]]) -> torch.Tensor:
        first = future.value()[0].clone()
        second = dist.all_reduce(future.value()[0], async_op=True).get_future().wait()[0]
        return first + second

    future = dist.all_reduce(tensor, async_op=True).get_future().then(again)
    total = everyone(5).sum(0)
    same(future.wait(), total + SIZE * total)
    future = dist.all_reduce(tensor.fill_(1), async_op=True).get_future()
    for _ in range(3):
        future = future.then(
            lambda f: dist.all_reduce(f.value()[0], async_op=True).get_future().wait()
        )
    same(future.wait()[0], torch.full((5,), float(SIZE**4)))


@case
def futures_run_their_code_elsewhere_and_pass_errors_on() -> None:
    seen = []
    group = dist.new_group()
    tensor = given(RANK, 3)
    gate = dist.barrier(group, async_op=True)
    work = dist.all_reduce(tensor, group=group, async_op=True)
    future = work.get_future().then(lambda f: seen.append(threading.get_ident()) or f.value()[0])
    chained = future.then(lambda f: f.value() / 0 if f.value() is None else 1 // 0)
    gate.wait()
    same(future.wait(), everyone(3).sum(0))
    assert len(seen) == 1
    refused(chained.wait, "ZeroDivisionError")
    dist.destroy_process_group(group)


@case
def futures_of_failed_operations() -> None:
    if SIZE == 1:
        return
    words = "did not make the same call"
    work = dist.all_reduce(torch.ones(3 + (RANK == 1)), async_op=True)
    future = work.get_future().then(lambda f: f.value())
    refused(future.wait, words)
    refused(work.wait, words)
    assert work.is_completed()
    assert not work.is_success()
    if torch_has(2, 7):
        assert words in str(work.exception())
    with _coalescing_manager(device=torch.device("cpu"), async_ops=True) as manager:
        dist.all_to_all_single(torch.empty(SIZE), torch.ones(SIZE), async_op=True)
        dist.broadcast(torch.ones(3 + (RANK == 1)), 0, async_op=True)
    together = manager.works[0]
    refused(together.get_future().wait, words)
    refused(together.wait, words)
    assert not together.is_success()


@case
def many_futures_at_once() -> None:
    """More chains under way than there are threads to begin with; each waits inside."""
    groups = [dist.new_group() for _ in range(4)]
    tensors = [given(RANK, 4) for _ in groups]

    def second(group: dist.ProcessGroup) -> object:
        return lambda f: dist.all_reduce(f.value()[0], group=group, async_op=True).wait()

    futures = [
        dist.all_reduce(tensor, group=group, async_op=True).get_future().then(second(group))
        for group, tensor in zip(groups, tensors, strict=True)
    ]
    for future, tensor, group in zip(futures, tensors, groups, strict=True):
        assert future.wait()
        same(tensor, SIZE * everyone(4).sum(0))
        dist.destroy_process_group(group)


@case
def coalesced_operations() -> None:
    """With and without a device: torch has two ways."""
    for options in ({}, {"device": torch.device("cpu")}):
        tensors = [given(RANK, n) for n in (1, 5, 1000)]
        with _coalescing_manager(async_ops=True, **options) as manager:
            for tensor in tensors:
                dist.all_reduce(tensor)
        manager.wait()
        for tensor in tensors:
            same(tensor, everyone(*tensor.shape).sum(0))
        gathered = [torch.empty(SIZE * n) for n in (3, 8)]
        with _coalescing_manager(**options):
            for tensor in gathered:
                dist.all_gather_single(tensor, given(RANK, len(tensor) // SIZE))
        for tensor in gathered:
            same(tensor, everyone(len(tensor) // SIZE).flatten())


@case
def coalesced_operations_of_all_kinds() -> None:
    """What torch does not gather into a list is begun one by one, and waited for together."""
    summed, exchanged = given(RANK, 5), torch.empty(SIZE)
    gathered = [torch.empty(2) for _ in range(SIZE)]
    received = torch.empty(3)
    with _coalescing_manager(device=torch.device("cpu"), async_ops=True) as manager:
        world().allreduce([summed])
        dist.all_gather(gathered, given(RANK, 2), async_op=True)
        dist.all_to_all_single(exchanged, given(RANK, SIZE), async_op=True)
        if SIZE > 1:
            dist.isend(given(RANK, 3), (RANK + 1) % SIZE)
            dist.irecv(received, (RANK - 1) % SIZE)
    work = manager.works[0]
    assert work.wait(timedelta(seconds=200))
    assert work.is_completed()
    assert work.is_success()
    assert len(work.get_future().wait()) == len(work.result())
    same(summed, everyone(5).sum(0))
    same(torch.stack(gathered), everyone(2))
    same(exchanged, everyone(SIZE)[:, RANK])
    if SIZE > 1:
        same(received, given((RANK - 1) % SIZE, 3))


@case
def all_reduce_coalesced_by_its_old_name() -> None:
    tensors = [given(RANK, 3), given(RANK, 2, 2)]
    options = dist.AllreduceCoalescedOptions()
    world().allreduce_coalesced(tensors, options).wait()
    for tensor in tensors:
        same(tensor, everyone(*tensor.shape).sum(0))


@case
def a_batch_of_messages() -> None:
    """All to all, in one batch, of sizes that differ; one of them is refused first."""
    if SIZE == 1:
        return
    others = [rank for rank in range(SIZE) if rank != RANK]
    sparse = torch.ones(2).to_sparse()
    bad = dist.P2POp(dist.isend, sparse, others[0])
    refused(lambda: dist.batch_isend_irecv([bad]), "sparse")
    received = {rank: torch.empty(RANK + 1, rank + 1) for rank in others}
    operations = [dist.P2POp(dist.irecv, received[rank], rank) for rank in others]
    operations += [dist.P2POp(dist.isend, given(RANK, r + 1, RANK + 1), r) for r in others]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    for rank, tensor in received.items():
        same(tensor, given(rank, RANK + 1, rank + 1))
