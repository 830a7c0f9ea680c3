"""broadcast_parameters and broadcast_optimizer_state of horovod.torch."""

from __future__ import annotations

from typing import Any

import torch
from cases_horovod_torch import model, tensor
from horovod import torch as hvd
from hvd_frames import Frame
from hvd_harness import RANK, RANKS, SIZE, case, refused, same
from torch import nn


@case
def broadcast_parameters(f: Frame) -> None:
    for root in RANKS:
        expected = model(root).state_dict()
        for give in ("state", "named", "dict"):
            mine = model(RANK)
            if give == "state":
                hvd.broadcast_parameters(mine.state_dict(), root_rank=root)
            elif give == "named":
                hvd.broadcast_parameters(list(mine.named_parameters()), root_rank=root)
            else:
                hvd.broadcast_parameters(dict(mine.named_parameters()), root_rank=root)
            for key, value in mine.state_dict().items():
                assert torch.equal(value, expected[key]), (root, give, key)
    refused(lambda: hvd.broadcast_parameters("text", 0), "invalid params", ValueError)


@case
def broadcast_parameters_in_any_layout(f: Frame) -> None:
    """Each rank keeps its own; views of a larger tensor are set in place."""
    for root in RANKS:
        net = nn.Conv2d(3, 4, 2)
        nn.init.constant_(net.weight, float(RANK))
        if root != RANK:
            net = net.to(memory_format=torch.channels_last)
        columns = torch.full((3, 2), float(RANK))
        hvd.broadcast_parameters({**net.state_dict(), "column": columns[:, 0]}, root_rank=root)
        assert (net.weight == root).all()
        is_last = net.weight.is_contiguous(memory_format=torch.channels_last)
        assert is_last == (root != RANK)
        assert columns.tolist() == [[root, RANK]] * 3


OPTIMIZERS = {
    "SGD": {"momentum": 0.9},
    "Adam": {"betas": (0.8, 0.9)},
    "AdamW": {"amsgrad": True, "weight_decay": 0.0},
    "Adagrad": {"lr_decay": 0.1},
    "Adadelta": {"rho": 0.8},
    "Adamax": {},
    "NAdam": {},
    "RAdam": {},
    "RMSprop": {"momentum": 0.5, "centered": True},
    "Rprop": {},
}
# These change weights even where a gradient is zero.
DECAYING = {
    "SGD": {"momentum": 0.9, "weight_decay": 0.1},
    "AdamW": {"weight_decay": 0.1},
    "ASGD": {"lambd": 0.1},
}


def train(net: nn.Module, optimizer: torch.optim.Optimizer, steps: int, seed: int) -> None:
    torch.manual_seed(seed)
    for _ in range(steps):
        optimizer.zero_grad()
        net(torch.randn(8, 4)).square().sum().backward()
        optimizer.step()


def broadcast_state(f: Frame, optimizers: dict[str, dict[str, Any]]) -> None:
    """Only the root has trained; after the broadcast all go on alike, bit for bit."""
    root = SIZE - 1
    for name, options in optimizers.items():
        net = model(0)
        optimizer = getattr(torch.optim, name)(net.parameters(), lr=0.01 * (RANK + 1), **options)
        if root == RANK:
            train(net, optimizer, 3, seed=1)
        hvd.broadcast_parameters(net.state_dict(), root_rank=root)
        hvd.broadcast_optimizer_state(optimizer, root_rank=root)
        assert optimizer.param_groups[0]["lr"] == 0.01 * (root + 1), (name, optimizer.param_groups)
        train(net, optimizer, 2, seed=2)
        gathered = hvd.allgather_object(
            {key: value.numpy() for key, value in net.state_dict().items()}, name=f.name(name)
        )
        for other in gathered:
            for key, value in net.state_dict().items():
                same(other[key], value.numpy(), (name, key))


@case
def broadcast_optimizer_state(f: Frame) -> None:
    broadcast_state(f, OPTIMIZERS)


@case
def broadcast_optimizer_state_leaves_the_weights_alone(f: Frame) -> None:
    broadcast_state(f, DECAYING)


@case
def broadcast_optimizer_state_of_a_fresh_start_is_no_step(f: Frame) -> None:
    """Where the root has no state, nobody has: all train as one process does."""
    options = OPTIMIZERS | {f"{name} decaying": kind for name, kind in DECAYING.items()}
    for name, kind in options.items():
        nets = [model(0), model(0)]
        plain, ours = (
            getattr(torch.optim, name.split()[0])(net.parameters(), lr=0.01, **kind) for net in nets
        )
        if RANK == SIZE - 1 and SIZE > 1:  # its past is not the root's
            train(nets[1], ours, 1, seed=3)
            nets[1].load_state_dict(nets[0].state_dict())
        hvd.broadcast_optimizer_state(ours, root_rank=0)
        assert len(ours.state) == len(plain.state), name  # Adagrad has some at once
        for net, optimizer in zip(nets, (plain, ours), strict=True):
            train(net, optimizer, 3, seed=1)
        for key, value in nets[0].state_dict().items():
            assert torch.equal(value, nets[1].state_dict()[key]), (name, key)


@case
def broadcast_optimizer_state_of_a_fresh_start_leaves_gradients_of_zeros(f: Frame) -> None:
    """Programs read them before the first backward(); one that is there stays."""
    net = model(0)
    first, *others = net.parameters()
    others[0].requires_grad = False
    others[1].grad = torch.ones_like(others[1])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, net.named_parameters())
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert first.grad.count_nonzero() == 0
    assert hvd.broadcast(first.grad, 0, name=f.name("zeros")).shape == first.shape
    assert others[0].grad is None
    assert (others[1].grad == 1).all()
    assert not optimizer.state


@case
def gradients_of_zeros_have_the_layout_of_their_own(f: Frame) -> None:
    """Sparse ones where an embedding's are, with which SparseAdam and SGD go on."""
    for name, by_model in (("SparseAdam", False), ("SGD", True)):
        nets = [nn.Embedding(5, 2, sparse=True) for _ in range(2)]
        nets[1].load_state_dict(nets[0].state_dict())
        plain, ours = (getattr(torch.optim, name)(net.parameters(), lr=0.1) for net in nets)
        hvd.broadcast_optimizer_state(ours, 0, model=nets[1] if by_model else None)
        assert nets[1].weight.grad.is_sparse, name
        for net, optimizer in zip(nets, (plain, ours), strict=True):
            net(torch.tensor([1, 3, 3])).square().sum().backward()
            assert net.weight.grad.is_sparse, name
            optimizer.step()
        assert torch.equal(nets[0].weight, nets[1].weight), name


@case
def broadcast_optimizer_state_in_any_layout(f: Frame) -> None:
    net = nn.Conv2d(3, 4, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    if RANK == 0:
        net = net.to(memory_format=torch.channels_last)
        net(tensor(2, 3, 4, 4)).sum().backward()
        optimizer.step()
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    momentum = optimizer.state[net.weight]["momentum_buffer"]
    assert momentum.is_contiguous(memory_format=torch.channels_last) == (RANK == 0)
    gathered = hvd.allgather_object(momentum.numpy(), name=f.name("momentum"))
    for other in gathered:
        same(other, momentum.numpy(), "momentum")


@case
def broadcast_optimizer_state_of_different_optimizers_is_refused(f: Frame) -> None:
    layers = list(model(0).children())
    groups = [{"params": layers[0].parameters()}, {"params": layers[3].parameters()}]
    optimizer = torch.optim.SGD(groups[: 1 + (RANK == 0)], lr=1.0)
    if RANK == 0:
        hvd.broadcast_optimizer_state(optimizer, 0)
    else:
        words = "parameter groups have [2] parameters, those of rank 0 have [2, 2]"
        refused(lambda: hvd.broadcast_optimizer_state(optimizer, 0), words, ValueError)


@case
def broadcast_optimizer_state_of_two_groups(f: Frame) -> None:
    net = model(0)
    layers = list(net.children())
    optimizer = torch.optim.SGD(
        [
            {"params": layers[0].parameters(), "lr": 0.1 * (RANK + 1)},
            {"params": layers[3].parameters(), "lr": 0.2 * (RANK + 1), "momentum": 0.5},
        ],
        lr=1.0,
    )
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.2]
    refused(
        lambda: hvd.broadcast_optimizer_state(torch.optim.LBFGS(net.parameters()), 0),
        "cannot broadcast torch.optim.LBFGS",
        ValueError,
    )
