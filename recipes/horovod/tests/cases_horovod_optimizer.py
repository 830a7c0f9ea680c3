"""horovod.torch.DistributedOptimizer: ranks that train on parts equal one that trains on all."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from horovod import torch as hvd
from hvd_frames import Frame
from hvd_harness import RANK, RANKS, SIZE, adasum, case, close, refused, same
from torch import Tensor, nn

STEPS = 4
BATCH = 6


def model() -> nn.Module:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(7, 9), nn.Tanh(), nn.Linear(9, 3)).double()


def batch(step: int, rank: int) -> Tensor:
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(BATCH, 7, generator=generator, dtype=torch.float64)


def whole_batch(step: int) -> Tensor:
    return torch.cat([batch(step, rank) for rank in RANKS])


def loss(net: nn.Module, inputs: Tensor) -> Tensor:
    return net(inputs).square().mean()


def weights(net: nn.Module) -> np.ndarray:
    return torch.cat([p.detach().double().flatten() for p in net.parameters()]).numpy()


def alone(make: Callable[[Any], torch.optim.Optimizer], steps: int = STEPS) -> np.ndarray:
    """The weights after one process has trained on everyone's batches."""
    net = model()
    optimizer = make(net.parameters())
    for step in range(steps):
        optimizer.zero_grad()
        loss(net, whole_batch(step)).backward()
        optimizer.step()
    return weights(net)


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.01)


def together(
    make: Callable[[Any], torch.optim.Optimizer], named: bool = True, **options: Any
) -> np.ndarray:
    """The weights after every rank has trained on its own batches."""
    net = model()
    names = net.named_parameters() if named else None
    optimizer = hvd.DistributedOptimizer(make(net.parameters()), names, **options)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss(net, batch(step, RANK)).backward()
        optimizer.step()
    return weights(net)


def alike(f: Frame, mine: np.ndarray) -> None:
    """Fails unless all ranks have the same weights, bit for bit."""
    for other in hvd.allgather_object(mine, name=f.name("weights")):
        same(other, mine, "weights of two ranks")


@case
def trains_as_one_process_does(f: Frame) -> None:
    for make in (sgd, adam):
        mine = together(make)
        alike(f, mine)
        close(mine, alone(make), 1e-12, make.__name__)


@case
def parameters_without_names(f: Frame) -> None:
    close(together(sgd, named=False), alone(sgd), 1e-12)


@case
def sum_instead_of_average(f: Frame) -> None:
    def slower(parameters: Any) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=0.1 / SIZE)

    expected = alone(lambda parameters: torch.optim.SGD(parameters, lr=0.1))
    close(together(slower, op=hvd.Sum), expected, 1e-12)


@case
def predivided_gradients(f: Frame) -> None:
    for factor in (2.0, 0.5, float(SIZE)):
        close(together(sgd, gradient_predivide_factor=factor), alone(sgd), 1e-12, factor)
    net = model()
    refused(
        lambda: hvd.DistributedOptimizer(
            sgd(net.parameters()), op=hvd.Sum, gradient_predivide_factor=2.0
        ),
        "gradient_predivide_factor not supported with op != Average",
        ValueError,
    )


@case
def grouped_gradients(f: Frame) -> None:
    for groups in (1, 2, 4):
        close(together(sgd, groups=groups), alone(sgd), 1e-12, groups)


@case
def groups_named_by_their_tensors(f: Frame) -> None:
    net = model()
    first, second = list(net.children())[0], list(net.children())[2]
    optimizer = hvd.DistributedOptimizer(
        sgd(net.parameters()),
        net.named_parameters(),
        groups=[[first.weight, second.bias], [second.weight]],
    )
    for step in range(STEPS):
        optimizer.zero_grad()
        loss(net, batch(step, RANK)).backward()
        optimizer.step()
    close(weights(net), alone(sgd), 1e-12)
    for groups, words in (
        (0, "non-negative integer"),
        ([["text"]], "must consist of torch.Tensor"),
        ([[first.weight], [first.weight]], "only appear once"),
    ):
        refused(
            lambda groups=groups: hvd.DistributedOptimizer(
                sgd(net.parameters()), net.named_parameters(), groups=groups
            ),
            words,
            ValueError,
        )


@case
def compressed_gradients(f: Frame) -> None:
    for options in ({}, {"groups": 2}):
        mine = together(sgd, compression=hvd.Compression.fp16, **options)
        alike(f, mine)
        close(mine, alone(sgd), 2e-3, options)


@case
def several_backward_passes_for_a_step(f: Frame) -> None:
    """Their gradients are added before they are averaged over the ranks."""
    for options in ({}, {"groups": 2}):
        net, reference = model(), model()
        optimizer = hvd.DistributedOptimizer(
            *(sgd(net.parameters()), net.named_parameters()), backward_passes_per_step=3, **options
        )
        plain = sgd(reference.parameters())
        for step in range(2):
            optimizer.zero_grad()
            plain.zero_grad()
            for turn in range(3):
                loss(net, batch(3 * step + turn, RANK)).backward()
                loss(reference, whole_batch(3 * step + turn)).backward()
            optimizer.step()
            plain.step()
        close(weights(net), weights(reference), 1e-12, options)


@case
def too_many_backward_passes_are_refused(f: Frame) -> None:
    if SIZE == 1:
        return
    net = model()
    optimizer = hvd.DistributedOptimizer(sgd(net.parameters()), net.named_parameters())
    loss(net, batch(0, RANK)).backward()
    refused(
        lambda: loss(net, batch(1, RANK)).backward(),
        "more than backward_passes_per_step times",
        AssertionError,
    )
    optimizer.synchronize()
    refused(
        lambda: hvd.DistributedOptimizer(sgd(net.parameters()), backward_passes_per_step=0),
        "backward_passes_per_step must be > 0",
        ValueError,
    )


@case
def zero_grad_between_backward_and_step_is_refused(f: Frame) -> None:
    if SIZE == 1:
        return
    net = model()
    optimizer = hvd.DistributedOptimizer(sgd(net.parameters()), net.named_parameters())
    loss(net, batch(0, RANK)).backward()
    refused(optimizer.zero_grad, "race condition", AssertionError)
    optimizer.step()
    optimizer.zero_grad()


@case
def clipped_gradients(f: Frame) -> None:
    """synchronize(), clip, then a step that does not synchronize again."""
    net, reference = model(), model()
    optimizer = hvd.DistributedOptimizer(sgd(net.parameters()), net.named_parameters())
    plain = sgd(reference.parameters())
    for step in range(STEPS):
        optimizer.zero_grad()
        loss(net, batch(step, RANK)).backward()
        optimizer.synchronize()
        nn.utils.clip_grad_norm_(net.parameters(), 0.01)
        with optimizer.skip_synchronize():
            optimizer.step()
        plain.zero_grad()
        loss(reference, whole_batch(step)).backward()
        nn.utils.clip_grad_norm_(reference.parameters(), 0.01)
        plain.step()
    alike(f, weights(net))
    close(weights(net), weights(reference), 1e-12)


@case
def a_second_synchronization_is_warned_of(f: Frame) -> None:
    net = model()
    optimizer = hvd.DistributedOptimizer(sgd(net.parameters()), net.named_parameters())
    loss(net, batch(0, RANK)).backward()
    optimizer.synchronize()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        optimizer.step()
    assert any("skip_synchronize" in str(one.message) for one in caught), caught


@case
def wrong_names_are_refused(f: Frame) -> None:
    net = model()
    parameters = list(net.named_parameters())
    for names, words in (
        ([("same", p) for _, p in parameters], "must be unique"),
        (parameters[:1], "were not named"),
        ([p for _, p in parameters], "sequence of tuples"),
    ):
        for options in ({}, {"op": hvd.Adasum}):
            refused(
                lambda names=names, options=options: hvd.DistributedOptimizer(
                    sgd(net.parameters()), names, **options
                ),
                words,
                ValueError,
            )


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
    first = list(net.children())[0]
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
        moves.append([(a - b).detach().numpy() for a, b in zip(one.parameters(), model().parameters(), strict=True)])
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
            other.load_state_dict(optimizer.state_dict())
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
    chosen = hvd.add_process_set(members) if SIZE > 2 else hvd.ProcessSet([0])
    if SIZE == 2:
        chosen = hvd.add_process_set(chosen)
    net, reference = model(), model()
    optimizer = hvd.DistributedOptimizer(
        sgd(net.parameters()), net.named_parameters(), process_set=chosen
    )
    plain = sgd(reference.parameters())
    mates = members if RANK in members else [RANK]
    for step in range(2):
        optimizer.zero_grad()
        loss(net, batch(step, RANK)).backward()
        optimizer.step()
        plain.zero_grad()
        loss(reference, torch.cat([batch(step, rank) for rank in mates])).backward()
        plain.step()
    assert hvd.remove_process_set(chosen)
    close(weights(net), weights(reference), 1e-12)
