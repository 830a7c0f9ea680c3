"""FSDP2: `fully_shard` against the same training on the whole batch in one process."""

from collections.abc import Callable

import torch
import torch.distributed as dist
from harness import FSDP_ON_CPUS, RANK, SIZE, case_since, refused, same
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

BATCH = 6  # of each rank


def net() -> nn.Sequential:
    """Nothing in it divides evenly among the ranks, and one bias is smaller than they are many."""
    torch.manual_seed(3)
    layers = [nn.Linear(7, 13), nn.Tanh(), nn.Linear(13, 5, bias=False), nn.Tanh(), nn.Linear(5, 3)]
    return nn.Sequential(*layers)


def data(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    torch.manual_seed(4)
    return torch.randn(BATCH * SIZE, 7).to(dtype), torch.randint(0, 3, (BATCH * SIZE,))


def sharded(model: nn.Sequential, mesh: DeviceMesh | None = None, **options: object) -> FSDPModule:
    mesh = mesh or init_device_mesh("cpu", (SIZE,))
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh, **options)
    fully_shard(model, mesh=mesh, **options)
    return model


def train(model: nn.Module, mine: slice, steps: int = 4) -> list[float]:
    """The mean losses over all ranks' rows of `mine`."""
    inputs, labels = data()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    losses = []
    for _ in range(steps):
        loss = nn.functional.cross_entropy(model(inputs[mine]), labels[mine])
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        assert norm > 0.1, "it must clip, or this shows nothing"
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return losses


def my_rows(rank: int = RANK) -> slice:
    return slice(BATCH * rank, BATCH * (rank + 1))


def assert_weights(model: nn.Module, alone: nn.Module, rtol: float = 1e-9) -> None:
    for ours, whole in zip(model.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(ours.full_tensor(), whole, rtol=rtol, atol=rtol)


def assert_trains_as_alone(mesh: DeviceMesh | None, **options: object) -> None:
    model, alone = sharded(net().double(), mesh, **options), net().double()
    for loss in zip(train(model, my_rows()), train(alone, slice(None)), strict=True):
        mean = loss[0].clone()
        dist.all_reduce(mean, dist.ReduceOp.AVG)
        torch.testing.assert_close(mean, loss[1], rtol=1e-9, atol=0)
    assert_weights(model, alone)


@case_since(*FSDP_ON_CPUS)
def fsdp_trains_as_one_process_does() -> None:
    for reshard in (True, False):
        assert_trains_as_alone(None, reshard_after_forward=reshard)


@case_since(*FSDP_ON_CPUS)
def fsdp_on_a_mesh_of_two_dimensions() -> None:
    """HSDP: sharded within the groups of one dimension, replicated over the other."""
    replicas = 2 if SIZE == 4 else 1
    names = ("replicate", "shard")
    assert_trains_as_alone(
        init_device_mesh("cpu", (replicas, SIZE // replicas), mesh_dim_names=names)
    )


def gradients(model: nn.Module, rank: int, dtype: torch.dtype) -> list[Tensor]:
    """What a rank computes by itself, in `dtype` all the way."""
    inputs, labels = data(dtype)
    rows = my_rows(rank)
    nn.functional.cross_entropy(model(inputs[rows]).float(), labels[rows]).backward()
    found = [parameter.grad for parameter in model.parameters()]
    model.zero_grad()
    return found


def half_precision(reduce_dtype: torch.dtype) -> tuple[list[Tensor], list[Tensor]]:
    """The gradients of an FSDP model in bfloat16, and what they must be."""
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=reduce_dtype)
    model = sharded(net(), mp_policy=policy)
    inputs, labels = data(torch.float32)
    nn.functional.cross_entropy(model(inputs[my_rows()]).float(), labels[my_rows()]).backward()
    ours = [parameter.grad.full_tensor() for parameter in model.parameters()]
    narrow = net().bfloat16()
    every = [gradients(narrow, rank, torch.bfloat16) for rank in range(SIZE)]
    means = [
        torch.stack(same_one).double().mean(0).float() for same_one in zip(*every, strict=True)
    ]
    return ours, means


@case_since(*FSDP_ON_CPUS)
def fsdp_in_mixed_precision() -> None:
    for reduce_dtype, rtol in ((torch.float32, 1e-6), (torch.bfloat16, 2**-7)):
        for ours, mean in zip(*half_precision(reduce_dtype), strict=True):
            assert ours.dtype == torch.float32
            torch.testing.assert_close(ours, mean, rtol=rtol, atol=1e-7)


def accumulated(prepare: Callable[[FSDPModule], None]) -> list[Tensor]:
    """The gradients after two backward passes, of which only the second communicates."""
    model = sharded(net())
    prepare(model)
    inputs, labels = data(torch.float32)
    for is_last, half in ((False, slice(0, 3)), (True, slice(3, 6))):
        model.set_requires_gradient_sync(is_last)
        loss = nn.functional.cross_entropy(model(inputs[my_rows()][half]), labels[my_rows()][half])
        loss.backward()
    return [parameter.grad.full_tensor() for parameter in model.parameters()]


@case_since(*FSDP_ON_CPUS)
def fsdp_accumulates_gradients_and_divides_by_any_factor() -> None:
    """A factor of one's own needs ReduceOp.PREMUL_SUM."""
    by_default = accumulated(lambda model: None)
    alone = net()
    inputs, labels = data(torch.float32)
    nn.functional.cross_entropy(alone(inputs), labels).backward()
    for ours, whole in zip(by_default, alone.parameters(), strict=True):
        torch.testing.assert_close(ours, 2 * whole.grad, rtol=1e-5, atol=1e-6)

    def set_ten(model: FSDPModule) -> None:
        for part in model.modules():
            if isinstance(part, FSDPModule):
                part.set_gradient_divide_factor(10.0)

    by_ten = accumulated(set_ten)
    for ours, whole in zip(by_ten, by_default, strict=True):
        torch.testing.assert_close(ours, whole * SIZE / 10, rtol=1e-5, atol=1e-6)


@case_since(*FSDP_ON_CPUS)
def fsdp_in_half_precision_sums_and_divides_itself() -> None:
    """float16 takes the way of SUM, with a division before and after."""
    policy = MixedPrecisionPolicy(reduce_dtype=torch.float16)
    model = sharded(net(), mp_policy=policy)
    inputs, labels = data(torch.float32)
    nn.functional.cross_entropy(model(inputs[my_rows()]), labels[my_rows()]).backward()
    alone = net()
    nn.functional.cross_entropy(alone(inputs), labels).backward()
    for ours, whole in zip(model.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(ours.grad.full_tensor(), whole.grad, rtol=4e-3, atol=1e-4)


@case_since(2, 7)
def premultiplied_sums() -> None:
    mine = torch.arange(1.0, 6.0) * (RANK + 1)
    total = torch.arange(1.0, 6.0) * SIZE * (SIZE + 1) / 2
    for factor in (0.5, torch.tensor([0.5])):
        op = dist.ReduceOp.PREMUL_SUM(factor)
        tensor = mine.clone()
        dist.all_reduce(tensor, op)
        same(tensor, total / 2)
        tensor = mine.repeat(SIZE)
        before = tensor.clone()
        output = torch.empty(5)
        dist.reduce_scatter_single(output, tensor, op)
        same(output, total / 2)
        same(tensor, before)
    refused(
        lambda: dist.all_reduce(torch.ones(2, dtype=torch.int32), dist.ReduceOp.PREMUL_SUM(2.0)),
        "PREMUL_SUM",
    )
