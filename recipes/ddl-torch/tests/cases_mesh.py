"""Meshes of devices: DTensor's placements, and tensor parallelism."""

import copy
import itertools

import torch
import torch.distributed as dist
from harness import FSDP_ON_CPUS, RANK, SIZE, case, case_since, same, torch_has
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import (
    DTensor,
    Partial,
    Replicate,
    Shard,
    distribute_module,
    distribute_tensor,
    empty,
    ones,
)
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)

ROWS = 2 if SIZE == 4 else 1


def line() -> DeviceMesh:
    return init_device_mesh("cpu", (SIZE,), mesh_dim_names=("all",))


def square() -> DeviceMesh:
    return init_device_mesh("cpu", (ROWS, SIZE // ROWS), mesh_dim_names=("data", "model"))


def numbers(*shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(11)
    return torch.randint(-9, 10, shape, generator=generator).double()


@case
def meshes_use_ddl() -> None:
    mesh = square()
    assert dist.get_backend(mesh.get_group("model")) == "ddl"
    assert mesh.get_local_rank("model") == RANK % (SIZE // ROWS)
    tensor = torch.ones(3) * RANK
    dist.all_reduce(tensor, group=mesh.get_group("data"))
    column = range(RANK % (SIZE // ROWS), SIZE, SIZE // ROWS)
    same(tensor, torch.ones(3) * sum(column))
    flat = mesh["data", "model"]._flatten("flat")
    assert flat.size() == SIZE
    dist.all_reduce(tensor := torch.ones(1), group=flat.get_group())
    same(tensor, torch.ones(1) * SIZE)


@case
def redistribution_on_a_line() -> None:
    """Between all placements, of sizes that divide evenly, do not, or leave ranks with nothing."""
    mesh = line()
    placements = [Replicate(), Shard(0), Shard(1)]
    for shape in ((8, 4), (7, 5), (3, 2), (1, 6)):
        whole = numbers(*shape)
        for before, after in itertools.product(placements, placements):
            tensor = distribute_tensor(whole, mesh, [before]).redistribute(mesh, [after])
            expected = distribute_tensor(whole, mesh, [after]).to_local()
            same(tensor.to_local(), expected)
            same(tensor.full_tensor(), whole)


@case
def partial_sums_on_a_line() -> None:
    mesh = line()
    whole = numbers(7, 5)
    for kind, factor in (("sum", SIZE * (SIZE + 1) / 2), ("avg", (SIZE + 1) / 2), ("max", SIZE)):
        mine = whole.abs() * (RANK + 1)
        for after in (Replicate(), Shard(0), Shard(1)):
            tensor = DTensor.from_local(mine, mesh, [Partial(kind)]).redistribute(mesh, [after])
            same(tensor.full_tensor(), whole.abs() * factor)


@case
def redistribution_on_a_square() -> None:
    mesh = square()
    kinds = [Replicate(), Shard(0), Shard(1)]
    every = list(itertools.product(kinds, kinds))
    whole = numbers(6, 7)
    for before, after in itertools.product(every, every[:: 1 if SIZE == 4 else 4]):
        tensor = distribute_tensor(whole, mesh, before).redistribute(mesh, after)
        same(tensor.full_tensor(), whole)


@case
def operations_on_sharded_tensors() -> None:
    mesh = square()
    left, right = numbers(6, 8), numbers(8, 5)
    for one, two in (
        ([Shard(0), Shard(1)], [Replicate(), Shard(0)]),  # partial sums over "model"
        ([Shard(0), Replicate()], [Replicate(), Shard(1)]),
        ([Replicate(), Shard(0)], [Shard(1), Replicate()]),
    ):
        a, b = distribute_tensor(left, mesh, one), distribute_tensor(right, mesh, two)
        same((a @ b).full_tensor(), left @ right)
        if torch_has(2, 7):  # 2.6 adds partial sums to partial maxima
            same((a.sum() + b.max()).full_tensor(), left.sum() + right.max())
        same(a.sum(dim=0).full_tensor(), left.sum(dim=0))
    assert ones(5, 3, device_mesh=mesh, placements=[Shard(0), Shard(1)]).sum().full_tensor() == 15
    assert empty(5, 3, device_mesh=mesh).to_local().shape == (5, 3)


@case
def gradients_of_redistribution() -> None:
    mesh = line()
    whole = numbers(7, 5)
    weight = numbers(7, 5).flip(0).contiguous()
    for before, after in (
        (Shard(0), Replicate()),
        (Replicate(), Shard(1)),
        (Shard(1), Shard(0)),
    ):
        tensor = distribute_tensor(whole, mesh, [before]).requires_grad_()
        moved = tensor.redistribute(mesh, [after])
        (moved * distribute_tensor(weight, mesh, [after])).sum().backward()
        same(tensor.grad.full_tensor(), weight)
    local = numbers(3, 2).requires_grad_()
    gathered = DTensor.from_local(local, mesh, [Shard(0)]).full_tensor()
    factors = torch.arange(SIZE * 6.0).double().view(SIZE * 3, 2)
    (gathered * factors).sum().backward()
    # Every rank computes the same from the whole, and each counts its own gradient once.
    same(local.grad, factors[3 * RANK : 3 * RANK + 3])


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(6)
        self.up = nn.Linear(6, 12)
        self.down = nn.Linear(12, 6)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.down(nn.functional.gelu(self.up(self.norm(inputs))))


def block() -> nn.Module:
    torch.manual_seed(5)
    return Block().double()


def step(model: nn.Module, inputs: Tensor) -> Tensor:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = model(inputs).square().mean()
    loss.backward()
    optimizer.step()
    return loss.detach()


def assert_same_weights(model: nn.Module, alone: nn.Module) -> None:
    for ours, whole in zip(model.parameters(), alone.parameters(), strict=True):
        full = ours.full_tensor() if isinstance(ours, DTensor) else ours
        torch.testing.assert_close(full, whole, rtol=1e-9, atol=1e-12)


@case
def tensor_parallel_training() -> None:
    inputs = numbers(4, 4 * SIZE, 6)
    plans = (
        {"up": ColwiseParallel(), "down": RowwiseParallel()},
        {
            "norm": SequenceParallel(),
            "up": ColwiseParallel(input_layouts=Shard(1)),
            "down": RowwiseParallel(output_layouts=Shard(1), use_local_output=False),
            "": PrepareModuleInput(input_layouts=Replicate(), desired_input_layouts=Shard(1)),
        },
    )
    for plan in plans:
        alone, model = block(), parallelize_module(block(), line(), plan)
        for _ in range(3):
            loss = step(model, inputs)
            full = loss.full_tensor() if isinstance(loss, DTensor) else loss
            torch.testing.assert_close(full, step(alone, inputs), rtol=1e-9, atol=0)
            model.zero_grad()
            alone.zero_grad()
        assert_same_weights(model, alone)


@case_since(*FSDP_ON_CPUS)
def tensor_parallel_with_fsdp() -> None:
    """The two dimensions of a mesh: FSDP over "data", tensor parallelism over "model"."""
    mesh = square()
    alone = block()
    model = parallelize_module(
        block(), mesh["model"], {"up": ColwiseParallel(), "down": RowwiseParallel()}
    )
    fully_shard(model, mesh=mesh["data"])
    inputs = numbers(2 * ROWS, 6)
    row = mesh.get_local_rank("data")
    for _ in range(3):
        step(model, inputs[2 * row : 2 * row + 2])
        step(alone, inputs)
        model.zero_grad()
        alone.zero_grad()
    assert_same_weights(model, alone)


@case
def loss_of_sharded_classes() -> None:
    mesh = line()
    scores, labels = numbers(6, 10), torch.tensor([0, 8, 3, 9, 1, 7])
    alone = scores.clone().requires_grad_()
    nn.functional.cross_entropy(alone, labels).backward()
    ours = distribute_tensor(scores, mesh, [Shard(1)]).requires_grad_()
    with loss_parallel():
        nn.functional.cross_entropy(ours, labels).backward()
    torch.testing.assert_close(ours.grad.full_tensor(), alone.grad)


@case
def replicated_modules_begin_alike() -> None:
    """distribute_module sends the first rank's values to all."""
    torch.manual_seed(RANK)
    module = nn.Linear(3, 3)
    first = copy.deepcopy(module)
    for parameter in first.parameters():
        dist.broadcast(parameter.detach(), 0)
    distributed = distribute_module(module, line())
    for ours, expected in zip(distributed.parameters(), first.parameters(), strict=True):
        same(ours.to_local().detach(), expected.detach())
