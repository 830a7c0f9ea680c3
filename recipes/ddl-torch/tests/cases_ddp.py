"""What DistributedDataParallel can do besides, and optimizers that share their state."""

import warnings
from collections.abc import Callable, Iterable

import torch
import torch.distributed as dist
from harness import RANK, SIZE, case, case_since, everyone, refused, same, torch_has
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import (
    default_hooks,
    post_localSGD_hook,
    powerSGD_hook,
    quantization_hooks,
)
from torch.distributed.algorithms.ddp_comm_hooks.ddp_zero_hook import hook_with_zero_step
from torch.distributed.algorithms.join import Join
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer, ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

BATCH = 4  # of each rank


def net() -> nn.Module:
    torch.manual_seed(6)
    return nn.Sequential(nn.Linear(6, 11), nn.Tanh(), nn.Linear(11, 4)).double()


def batch(number: int) -> tuple[Tensor, Tensor]:
    torch.manual_seed(60 + number)
    return torch.randn(BATCH * SIZE, 6).double(), torch.randint(0, 4, (BATCH * SIZE,))


MINE = slice(BATCH * RANK, BATCH * (RANK + 1))


def backward(model: nn.Module, number: int, rows: slice) -> None:
    inputs, labels = batch(number)
    nn.functional.cross_entropy(model(inputs[rows]), labels[rows]).backward()


def trained(
    model: nn.Module, rows: slice, optimizer: torch.optim.Optimizer | None = None, steps: int = 3
) -> nn.Module:
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
    for number in range(steps):
        optimizer.zero_grad()
        backward(model, number, rows)
        optimizer.step()
    return model


def alone() -> nn.Module:
    return trained(net(), slice(None))


def close(ours: Iterable[Tensor], theirs: Iterable[Tensor], tolerance: float = 1e-10) -> None:
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


def equal_on_all_ranks(model: nn.Module) -> None:
    for parameter in model.parameters():
        first = parameter.detach().clone()
        dist.broadcast(first, 0)
        same(parameter.detach(), first)


@case
def ddp_options() -> None:
    expected = alone()
    for options in (
        {"gradient_as_bucket_view": True},
        {"static_graph": True},
        {"find_unused_parameters": True},
        {"bucket_cap_mb": 0.0002},  # a bucket for each parameter
        *([{"init_sync": False}] if torch_has(2, 7) else ()),
    ):
        model = trained(DistributedDataParallel(net(), **options), MINE)
        close(model.parameters(), expected.parameters())
        equal_on_all_ranks(model)


@case
def ddp_accumulates_without_communication() -> None:
    """no_sync(): the gradients of the passes inside are the rank's own."""
    model, local = DistributedDataParallel(net()), net()
    with model.no_sync():
        backward(model, 0, MINE)
    backward(local, 0, MINE)
    close((p.grad for p in model.parameters()), (p.grad for p in local.parameters()))
    backward(model, 1, MINE)
    whole = net()
    for number in (0, 1):
        backward(whole, number, slice(None))
    close((p.grad for p in model.parameters()), (p.grad for p in whole.parameters()))


def hooked(hook: Callable[..., object], state: object = None) -> nn.Module:
    model = DistributedDataParallel(net())
    model.register_comm_hook(state, hook)
    return trained(model, MINE)


@case
def ddp_communication_hooks() -> None:
    expected = alone()
    for hook, tolerance in (
        (default_hooks.allreduce_hook, 1e-10),
        (default_hooks.fp16_compress_hook, 3e-3),
        (default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook), 3e-3),
    ):
        model = hooked(hook)
        close(model.parameters(), expected.parameters(), tolerance)
        equal_on_all_ranks(model)
    for kind in dist.BuiltinCommHookType.ALLREDUCE, dist.BuiltinCommHookType.FP16_COMPRESS:
        model = DistributedDataParallel(net())
        model._register_builtin_comm_hook(kind)
        close(trained(model, MINE).parameters(), expected.parameters(), 3e-3)
        equal_on_all_ranks(model)


@case
def ddp_with_powersgd() -> None:
    """Its hook waits, on a future, for operations of the same group. Of rank 6 it loses nothing."""
    for rank in (6, 1):
        state = powerSGD_hook.PowerSGDState(
            process_group=None,
            matrix_approximation_rank=rank,
            start_powerSGD_iter=2,
            min_compression_rate=0.1,
        )
        model = DistributedDataParallel(net())
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        trained(model, MINE, steps=5)
        equal_on_all_ranks(model)
        if rank == 6:
            close(model.parameters(), trained(net(), slice(None), steps=5).parameters(), 1e-6)


@case
def ddp_with_quantized_gradients() -> None:
    model = hooked(quantization_hooks.quantization_pertensor_hook, dist.group.WORLD)
    equal_on_all_ranks(model)
    close(model.parameters(), alone().parameters(), 0.2)


@case
def ddp_with_local_sgd() -> None:
    """Gradients within one's own group, and now and then the average of all weights."""
    group, _ = dist.new_subgroups(group_size=1)
    state = post_localSGD_hook.PostLocalSGDState(None, group, start_localSGD_iter=1)
    model = DistributedDataParallel(net())
    model.register_comm_hook(state, post_localSGD_hook.post_localSGD_hook)
    inner = torch.optim.SGD(model.parameters(), lr=0.3)
    averager = PeriodicModelAverager(period=2, warmup_steps=0)
    trained(model, MINE, PostLocalSGDOptimizer(inner, averager), steps=5)
    equal_on_all_ranks(model)


@case
def ddp_joins_ranks_that_have_more_to_do() -> None:
    """Rank r has r + 1 batches; the ranks that are done shadow the others."""
    model = DistributedDataParallel(net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with model.join(divide_by_initial_world_size=False):
        for number in range(RANK + 1):
            optimizer.zero_grad()
            backward(model, number, MINE)
            optimizer.step()
    equal_on_all_ranks(model)
    local = net()
    step = torch.optim.SGD(local.parameters(), lr=0.1)
    for number in range(SIZE):
        step.zero_grad()
        backward(local, number, slice(BATCH * number, None))  # the ranks that still take part
        step.step()
    close(model.parameters(), local.parameters())


@case
def ddp_with_sparse_gradients() -> None:
    """Rows of an embedding; no rank touches the same."""

    def words() -> nn.Module:
        torch.manual_seed(8)
        return nn.Sequential(nn.Embedding(10, 3, sparse=True), nn.Linear(3, 2)).double()

    rows = torch.tensor([[r, (r + 1) % 10, 9, 9] for r in range(SIZE)])
    model, whole = DistributedDataParallel(words()), words()
    model(rows[RANK]).square().mean().backward()
    whole(rows.flatten()).square().mean().backward()
    ours, theirs = model.module[0].weight.grad, whole[0].weight.grad
    assert ours.is_sparse
    close([ours.to_dense()], [theirs.to_dense()])
    close((p.grad for p in model.module[1].parameters()), (p.grad for p in whole[1].parameters()))


@case
def batch_norm_needs_a_gpu() -> None:
    """SyncBatchNorm is torch's, and it has no CPU path."""
    model = nn.SyncBatchNorm.convert_sync_batchnorm(nn.BatchNorm1d(3))
    refused(lambda: model(torch.ones(4, 3)), "GPU")
    refused(lambda: DistributedDataParallel(model), "GPU")


@case
def zero_redundancy_optimizer() -> None:
    model = DistributedDataParallel(net())
    optimizer = ZeroRedundancyOptimizer(
        model.parameters(), torch.optim.Adam, lr=0.05, parameters_as_bucket_view=True
    )
    trained(model, MINE, optimizer)
    whole = net()
    adam = torch.optim.Adam(whole.parameters(), lr=0.05)
    trained(whole, slice(None), adam)
    close(model.parameters(), whole.parameters())
    equal_on_all_ranks(model)
    optimizer.consolidate_state_dict(to=0)
    if RANK == 0:
        ours, theirs = optimizer.state_dict()["state"], adam.state_dict()["state"]
        close((ours[n]["exp_avg"] for n in theirs), (theirs[n]["exp_avg"] for n in theirs))


@case_since(2, 7)  # 2.6 takes it from NCCL only
def zero_redundancy_optimizer_steps_within_the_hook() -> None:
    model = DistributedDataParallel(net(), gradient_as_bucket_view=True)
    optimizer = ZeroRedundancyOptimizer(
        model.parameters(), torch.optim.SGD, lr=0.3, momentum=0.9, overlap_with_ddp=True
    )
    hook = hook_with_zero_step(default_hooks.allreduce_hook, model, optimizer)
    model.register_comm_hook(None, hook)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it uses what is left of TorchScript
        for number in range(6):
            backward(model, number, MINE)
            for parameter in model.parameters():
                parameter.grad = None
    equal_on_all_ranks(model)
    whole = net()
    step = torch.optim.SGD(whole.parameters(), lr=0.3, momentum=0.9)
    for number in range(2, 6):  # two passes make the buckets, and update nothing
        step.zero_grad()
        backward(whole, number, slice(None))
        step.step()
    close(model.parameters(), whole.parameters())


@case
def joining_optimizers_and_models() -> None:
    model = DistributedDataParallel(net())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1)
    with Join([model, optimizer]):
        for number in range(1 + (RANK == 0)):
            optimizer.zero_grad()
            backward(model, number, MINE)
            optimizer.step()
    equal_on_all_ranks(model)
    dist.all_reduce(total := torch.ones(2))
    same(total, everyone(2).sum(0) * 0 + SIZE)
