"""horovod.torch.DistributedOptimizer: ranks that train on parts equal one that trains on all."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from horovod import torch as hvd
from hvd_frames import Frame
from hvd_harness import RANK, SIZE, case, close, refused
from hvd_training import (
    STEPS,
    adam,
    alike,
    alone,
    batch,
    loss,
    model,
    sgd,
    together,
    weights,
    whole_batch,
)
from torch import nn


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
    first, _, second = net.children()
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
