"""Order, groups, errors and training."""

from datetime import timedelta

import torch
import torch.distributed as dist
from harness import RANK, SIZE, case, everyone, given, refused, same
from torch import Tensor, nn


@case
def asynchronous_operations_keep_their_order() -> None:
    tensors = [given(RANK, 1 + 1000 * (n % 3)) for n in range(20)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    for work in reversed(works):
        assert work.wait()
        assert work.is_completed()
    for tensor in tensors:
        same(tensor, everyone(*tensor.shape).sum(0))
    # One after the other on the same tensor: only the order gives this number.
    tensor = torch.full((1000,), float(RANK == 0))
    first = dist.broadcast(tensor, 0, async_op=True)
    second = dist.all_reduce(tensor, async_op=True)
    third = dist.all_reduce(tensor, async_op=True)
    third.wait()
    assert first.is_completed()
    assert second.is_completed()
    same(tensor, torch.full((1000,), float(SIZE * SIZE)))


@case
def futures() -> None:
    tensor = given(RANK, 10)
    work = dist.all_reduce(tensor, async_op=True)
    doubled = work.get_future().then(lambda future: 2 * future.value()[0]).wait()
    same(doubled, 2 * everyone(10).sum(0))
    outputs = [torch.empty(2) for _ in range(SIZE)]
    value = dist.all_gather(outputs, given(RANK, 2), async_op=True).get_future().wait()
    same(value[0][SIZE - 1], given(SIZE - 1, 2))


@case
def groups() -> None:
    """Overlapping ones, in another order than the ranks', all in use at once."""
    members = [list(range(n, SIZE)) for n in range(SIZE)] + [[0], [0, SIZE - 1][: min(SIZE, 2)]]
    made = [(ranks, dist.new_group(ranks)) for ranks in members]
    works = []
    for ranks, group in made:
        if RANK in ranks:
            assert dist.get_backend(group) == "ddl"
            tensor = given(RANK, 100)
            works.append((ranks, tensor, dist.all_reduce(tensor, group=group, async_op=True)))
    for ranks, tensor, work in works:
        work.wait()
        same(tensor, torch.stack([given(r, 100) for r in ranks]).sum(0))
    for ranks, group in made:
        if RANK in ranks:
            dist.broadcast(tensor := given(RANK, 3), ranks[-1], group=group)
            same(tensor, given(ranks[-1], 3))
            dist.destroy_process_group(group)
    dist.barrier()


@case
def a_monitored_barrier() -> None:
    """torch's own function and the group's method; and a group that not all are in."""
    dist.group.WORLD.monitored_barrier(timedelta(seconds=200), wait_all_ranks=True)
    ranks = list(range(0, SIZE, 2))
    group = dist.new_group(ranks)
    for _ in range(3):
        dist.monitored_barrier()
        if RANK in ranks:
            dist.monitored_barrier(group, timeout=timedelta(seconds=100), wait_all_ranks=True)
    if RANK in ranks:
        dist.destroy_process_group(group)


@case
def a_destroyed_group_gives_its_communicator_back() -> None:
    for _ in range(40):
        groups = [dist.new_group() for _ in range(4)]
        for group in groups:
            dist.destroy_process_group(group)


@case
def unsupported_operations_are_refused_and_do_no_harm() -> None:
    for operation, words in (
        (lambda: dist.all_reduce(given(0, 2), dist.ReduceOp.BAND), "take integers"),
        (lambda: dist.all_reduce(torch.ones(2, dtype=torch.int32), dist.ReduceOp.AVG), "average"),
        (lambda: dist.all_reduce(given(0, 2).to(torch.float8_e4m3fn)), "Float8_e4m3fn"),
        (lambda: dist.all_gather_single(torch.empty(SIZE * 3), given(0, 2)), "elements"),
        (lambda: dist.broadcast(given(0, 2).to_sparse(), 0), "sparse"),
        (lambda: dist.all_to_all_single(given(0, 3), given(0, 3), [1] * SIZE, [7] * SIZE), "split"),
    ):
        refused(operation, words)
    tensor = given(RANK, 10)
    dist.all_reduce(tensor)
    same(tensor, everyone(10).sum(0))


@case
def a_mismatch_is_an_error_on_all_ranks() -> None:
    if SIZE == 1:
        return
    words = "ddl: the ranks did not make the same call"
    refused(lambda: dist.all_reduce(torch.ones(3 + (RANK == 1))), words)
    work = dist.all_reduce(torch.ones(3 + (RANK == 1)), async_op=True)
    refused(lambda: work.get_future().wait(), words)
    tensor = given(RANK, 10)
    dist.all_reduce(tensor)
    same(tensor, everyone(10).sum(0))


def net() -> nn.Module:
    torch.manual_seed(RANK)  # each rank begins elsewhere; DDP must make them equal
    return nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(4 * 36, 32),
        nn.Tanh(),
        nn.Linear(32, 5),
    ).double()


@case
def ddp_gradients_are_those_of_the_whole_batch() -> None:
    torch.manual_seed(7)
    images, labels = torch.randn(8 * SIZE, 1, 8, 8).double(), torch.randint(0, 5, (8 * SIZE,))
    model = nn.parallel.DistributedDataParallel(net(), bucket_cap_mb=0.01)
    alone = net()
    alone.load_state_dict(model.module.state_dict())
    mine = slice(8 * RANK, 8 * RANK + 8)
    nn.functional.cross_entropy(model(images[mine]), labels[mine]).backward()
    nn.functional.cross_entropy(alone(images), labels).backward()
    for ours, whole in zip(model.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, whole.grad, rtol=1e-12, atol=1e-14)


class Branches(nn.Module):
    """Every step uses one branch only, and not all ranks use the same."""

    def __init__(self) -> None:
        super().__init__()
        self.body = net().float()
        self.norm = nn.BatchNorm1d(5)
        self.branches = nn.ModuleList([nn.Linear(5, 5) for _ in range(3)])

    def forward(self, images: Tensor, branch: int) -> Tensor:
        return self.branches[branch](self.norm(self.body(images)))


@case
def ddp_keeps_the_weights_equal() -> None:
    model = nn.parallel.DistributedDataParallel(Branches(), find_unused_parameters=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    torch.manual_seed(100 + RANK)
    for step in range(12):
        optimizer.zero_grad()
        scores = model(torch.randn(16, 1, 8, 8), (step + RANK) % 3)
        nn.functional.cross_entropy(scores, torch.randint(0, 5, (16,))).backward()
        optimizer.step()
    for tensor in model.parameters():
        copies = [torch.empty_like(tensor) for _ in range(SIZE)]
        dist.all_gather(copies, tensor.detach())
        for copy in copies:
            same(copy, tensor.detach())
