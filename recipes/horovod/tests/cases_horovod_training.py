"""horovod.torch.DistributedOptimizer with models that are not plain: branches, sparse, frozen."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from horovod import torch as hvd
from hvd_frames import Frame
from hvd_harness import RANK, RANKS, SIZE, adasum, case, close, refused, same
from hvd_sets import added
from hvd_training import (
    STEPS,
    adam,
    alike,
    batch,
    loss,
    model,
    sgd,
    weights,
)
from torch import Tensor, nn


class Branches(nn.Module):
    """Uses only one of its two layers, another one on every second rank."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.left, self.right = nn.Linear(7, 3).double(), nn.Linear(7, 3).double()

    def forward(self, inputs: Tensor, rank: int) -> Tensor:
        return (self.left if rank % 2 == 0 else self.right)(inputs)


@case
def layers_that_some_ranks_do_not_use(f: Frame) -> None:
    """Who has no gradient gives zeros, so nobody waits for it."""
    net, reference = Branches(), Branches()
    optimizer = hvd.DistributedOptimizer(sgd(net.parameters()), net.named_parameters())
    plain = sgd(reference.parameters())
    for step in range(2):
        optimizer.zero_grad()
        net(batch(step, RANK), RANK).square().mean().backward()
        optimizer.step()
        plain.zero_grad()
        total = sum(reference(batch(step, r), r).square().mean() for r in RANKS) / SIZE
        total.backward()
        if SIZE == 1:
            for parameter in reference.right.parameters():
                parameter.grad = None
        plain.step()
    close(weights(net), weights(reference), 1e-12)


@case
def frozen_layers(f: Frame) -> None:
    net = model()
    first = next(iter(net.children()))
    first.requires_grad_(False)
    before = first.weight.clone()
    optimizer = hvd.DistributedOptimizer(sgd(net.parameters()), net.named_parameters())
    for step in range(2):
        optimizer.zero_grad()
        loss(net, batch(step, RANK)).backward()
        optimizer.step()
    assert torch.equal(first.weight, before)
    alike(f, weights(net))


@case
def sparse_embeddings(f: Frame) -> None:
    """Gathered as they are, or made dense first: the weights are those of a dense embedding."""
    for as_dense in (False, True):
        torch.manual_seed(3)
        net = nn.Embedding(10, 4, sparse=True)
        reference = nn.Embedding(10, 4, _weight=net.weight.detach().clone())
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(net.parameters(), lr=0.5),
            net.named_parameters(),
            sparse_as_dense=as_dense,
        )
        plain = torch.optim.SGD(reference.parameters(), lr=0.5)
        for step in range(3):
            words = [torch.tensor([r % 10, (r + step) % 10, 9]) for r in RANKS]
            optimizer.zero_grad()
            net(words[RANK]).square().sum().backward()
            optimizer.step()
            plain.zero_grad()
            (sum(reference(w).square().sum() for w in words) / SIZE).backward()
            plain.step()
        close(weights(net), weights(reference), 1e-5, as_dense)


@case
def gradients_that_are_not_contiguous(f: Frame) -> None:
    """A gradient may be a transposed view; it must be averaged all the same."""
    torch.manual_seed(3)
    weight = nn.Parameter(torch.randn(5, 4))

    class Transposed(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, value: Tensor) -> Tensor:
            return value.clone()

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            return gradient.t().contiguous().t()

    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD([weight], lr=1.0), [(f.name("weight"), weight)]
    )
    before = weight.detach().clone()
    scale = torch.arange(20.0).view(5, 4)
    (Transposed.apply(weight) * scale * (RANK + 1)).sum().backward()
    optimizer.step()
    expected = before - scale * sum(rank + 1 for rank in RANKS) / SIZE
    close(weight.detach().double().numpy(), expected.double().numpy(), 1e-4)


@case
def adasum_of_the_steps(f: Frame) -> None:
    """With op=Adasum every rank makes its own step, and the steps are combined."""
    net, before = model(), weights(model())
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(net.parameters(), lr=0.1), net.named_parameters(), op=hvd.Adasum
    )
    optimizer.zero_grad()
    loss(net, batch(0, RANK)).backward()
    optimizer.step()
    moves = []
    for rank in RANKS:
        one = model()
        plain = torch.optim.SGD(one.parameters(), lr=0.1)
        loss(one, batch(0, rank)).backward()
        plain.step()
        pairs = zip(one.parameters(), model().parameters(), strict=True)
        moves.append([(after - start).detach().numpy() for after, start in pairs])
    expected = [adasum([move[i] for move in moves]).ravel() for i in range(len(moves[0]))]
    alike(f, weights(net))
    close(weights(net), before + np.concatenate(expected), 1e-10)


@case
def adasum_refuses_what_it_cannot_do(f: Frame) -> None:
    if SIZE == 1:
        return
    net = model()
    optimizer = hvd.DistributedOptimizer(
        sgd(net.parameters()), net.named_parameters(), op=hvd.Adasum
    )

    def skip() -> None:
        with optimizer.skip_synchronize():
            pass

    refused(skip, "not supported when using Adasum", AssertionError)


@case
def state_goes_into_a_checkpoint_and_back(f: Frame) -> None:
    net, again = model(), model()
    optimizer = hvd.DistributedOptimizer(adam(net.parameters()), net.named_parameters())
    other = hvd.DistributedOptimizer(adam(again.parameters()), again.named_parameters())
    for step in range(STEPS):
        if step == 2:
            again.load_state_dict(net.state_dict())
            other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        pairs = [(net, optimizer)] + ([(again, other)] if step >= 2 else [])
        for network, its in pairs:
            its.zero_grad()
            loss(network, batch(step, RANK)).backward()
            its.step()
    same(weights(again), weights(net))


@case
def in_a_process_set(f: Frame) -> None:
    """Only the members' gradients are averaged; the others train alone."""
    if SIZE == 1:
        return
    members = list(range(SIZE - 1))
    net, reference = model(), model()
    plain = sgd(reference.parameters())
    mates = members if RANK in members else [RANK]
    with added(hvd, members) as chosen:
        optimizer = hvd.DistributedOptimizer(
            sgd(net.parameters()), net.named_parameters(), process_set=chosen
        )
        for step in range(2):
            optimizer.zero_grad()
            loss(net, batch(step, RANK)).backward()
            optimizer.step()
    for step in range(2):
        plain.zero_grad()
        loss(reference, torch.cat([batch(step, rank) for rank in mates])).backward()
        plain.step()
    close(weights(net), weights(reference), 1e-12)
