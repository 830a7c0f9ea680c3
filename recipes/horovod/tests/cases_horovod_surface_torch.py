"""horovod.torch where scripts use it in other ways than the usual ones."""

from __future__ import annotations

import copy
from typing import Any

import torch
from cases_horovod_torch import numbers, tensor
from horovod import torch as hvd
from hvd_frames import Frame
from hvd_harness import RANK, RANKS, SIZE, case, close, everyone, refused, same
from torch import Tensor, nn


def wrapped(net: nn.Module, lr: float = 0.1, **options: Any) -> Any:
    optimizer = torch.optim.SGD(net.parameters(), lr=lr)
    return hvd.DistributedOptimizer(optimizer, net.named_parameters(), **options)


def alike(f: Frame, net: nn.Module) -> None:
    flat = torch.cat([one.detach().flatten() for one in net.parameters()])
    every = hvd.allgather(flat[None], name=f.name("weights"))
    for rank in RANKS:
        same(numbers(every[rank]), numbers(flat))


def begin(net: nn.Module) -> nn.Module:
    hvd.broadcast_parameters(net.state_dict(), root_rank=0)
    return net


@case
def what_was_not_built(f: Frame) -> None:
    assert hvd.gloo_built()
    for absent in (hvd.nccl_built, hvd.ccl_built, hvd.cuda_built, hvd.rocm_built):
        assert not absent()


@case
def handles_of_operations_in_place(f: Frame) -> None:
    value, other = tensor(5), tensor(5)
    handles = [
        hvd.broadcast_async_(value, SIZE - 1, name=f.name("b")),
        hvd.allreduce_async_(other, op=hvd.Sum, name=f.name("a")),
    ]
    for handle, written in zip(handles, (value, other), strict=True):
        assert hvd.synchronize(handle) is written
    same(numbers(value), everyone(5)[SIZE - 1])
    same(numbers(other), everyone(5).sum(0))


@case
def a_part_of_the_model_is_without_gradient_on_some_ranks(f: Frame) -> None:
    """Where rank 0 alone uses a layer, the others give zeros: nobody waits."""
    net = begin(nn.ModuleDict({"all": nn.Linear(3, 2), "some": nn.Linear(2, 2)}))
    weight = net["some"].weight.detach().clone()
    optimizer = wrapped(net)
    for _ in range(3):
        optimizer.zero_grad()
        hidden = net["all"](tensor(4, 3))
        (net["some"](hidden) if RANK == 0 else hidden).sum().backward()
        optimizer.step()
    alike(f, net)
    assert not torch.equal(weight, net["some"].weight)


@case
def backward_twice_without_a_step_is_refused(f: Frame) -> None:
    net = begin(nn.Linear(3, 2))
    optimizer = wrapped(net)
    loss = net(tensor(4, 3)).sum()
    loss.backward(retain_graph=True)
    refused(loss.backward, "backward_passes_per_step", AssertionError)
    optimizer.synchronize()
    optimizer.zero_grad()


@case
def gradients_in_a_number_of_groups(f: Frame) -> None:
    torch.manual_seed(3)
    net = begin(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)))
    other = copy.deepcopy(net)
    optimizer, usual = wrapped(net, num_groups=2), wrapped(other)
    for _ in range(2):
        for one, its in ((net, optimizer), (other, usual)):
            its.zero_grad()
            one(tensor(4, 3)).sum().backward()
            its.step()
    for one, two in zip(net.parameters(), other.parameters(), strict=True):
        close(numbers(one), numbers(two), 1e-6)


@case
def a_loss_of_two_optimizers(f: Frame) -> None:
    """As generative adversarial networks have it: each steps for itself."""
    one, two = begin(nn.Linear(3, 2)), begin(nn.Linear(2, 1))
    first, second = wrapped(one), wrapped(two)
    for _ in range(2):
        first.zero_grad()
        second.zero_grad()
        second_loss = two(one(tensor(4, 3)).detach()).sum()
        second_loss.backward()
        second.step()
        for parameter in two.parameters():
            parameter.requires_grad_(False)
        two(one(tensor(4, 3))).sum().backward()
        first.step()
        for parameter in two.parameters():
            parameter.requires_grad_(True)
    alike(f, one)
    alike(f, two)


@case
def learning_rate_schedulers_take_the_optimizer(f: Frame) -> None:
    net = begin(nn.Linear(3, 2))
    optimizer = wrapped(net)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    for step in range(3):
        assert optimizer.param_groups[0]["lr"] == 0.1 * 0.5**step
        optimizer.zero_grad()
        net(tensor(4, 3)).sum().backward()
        optimizer.step()
        scheduler.step()
    alike(f, net)


@case
def a_checkpoint_on_rank_0_is_resumed_everywhere(f: Frame) -> None:
    """As tutorials do it: rank 0 loads, then parameters and the optimizer's state are given out."""
    net = nn.Linear(3, 2)
    past = copy.deepcopy(net)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.Adam(net.parameters(), lr=0.1), net.named_parameters()
    )
    if RANK == 0:
        saved = torch.optim.Adam(past.parameters(), lr=0.5)
        past(tensor(4, 3)).sum().backward()
        saved.step()
        net.load_state_dict(past.state_dict())
        optimizer.load_state_dict(saved.state_dict())
    begin(net)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    epoch = int(hvd.broadcast(torch.tensor(7 if RANK == 0 else 0), 0, name=f.name("epoch")))
    assert (epoch, optimizer.param_groups[0]["lr"]) == (7, 0.5)
    optimizer.zero_grad()
    net(tensor(4, 3)).sum().backward()
    optimizer.step()
    alike(f, net)
    assert all(float(one["step"]) == 2 for one in optimizer.state.values())


@case
def a_sampler_shares_out_the_data(f: Frame) -> None:
    from torch.utils.data import DataLoader, TensorDataset
    from torch.utils.data.distributed import DistributedSampler

    data = TensorDataset(torch.arange(4 * SIZE))
    sampler: Any = DistributedSampler(data, num_replicas=hvd.size(), rank=hvd.rank())
    seen: list[Tensor] = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        seen = [batch for (batch,) in DataLoader(data, batch_size=2, sampler=sampler)]
    mine = torch.cat(seen)
    every = hvd.allgather(mine, name=f.name("seen"))
    assert sorted(every.tolist()) == list(range(4 * SIZE))
    average = hvd.allreduce(mine.double().mean(), name=f.name("mean"))
    assert float(average) == (4 * SIZE - 1) / 2
