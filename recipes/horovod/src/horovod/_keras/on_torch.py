# Copyright DDL-CE contributors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
# ==============================================================================
"""Keras on PyTorch: nothing is compiled, and Horovod takes the tensors where they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import horovod.torch as hvd
import torch
from horovod._keras.values import positions

reference = id
Reduce = Callable[[Sequence[Any], Sequence[Any]], Sequence[Any]]


def make_allreduce_grads(
    name: str,
    _device_dense: str,
    _device_sparse: str,
    compression: Any,
    _sparse_as_dense: bool,
    op: Any,
    gradient_predivide_factor: float,
    groups: Any,
    process_set: Any,
) -> Reduce:
    """Make the function that reduces gradients. Keras has no sparse ones on PyTorch."""
    factor = gradient_predivide_factor if op == hvd.Average else 1.0
    options = {
        "op": op,
        "prescale_factor": 1.0 / factor,
        "postscale_factor": factor,
        "process_set": process_set,
    }

    def allreduce(grads: Sequence[Any], variables: Sequence[Any]) -> Sequence[Any]:
        results = list(grads)
        there = [i for i, grad in enumerate(grads) if grad is not None]
        small = {i: compression.compress(grads[i].detach()) for i in there}
        under_way = []
        for group in positions(groups, variables, there):
            tensors = [small[i][0] for i in group]
            # Named by a variable's place, which is the same on all ranks: no gradient is missing.
            handle = hvd.grouped_allreduce_async(tensors, name=f"{name}.{group[0]}", **options)
            under_way.append((group, handle))
        for group, handle in under_way:
            for i, reduced in zip(group, hvd.synchronize(handle), strict=True):
                results[i] = compression.decompress(reduced, small[i][1])
        return results

    return allreduce


def when_updating(_optimizer: Any, function: Callable[[Any], Any], grads: Any) -> Any:
    """Call it: Keras asks in the step that updates."""
    return function(grads)


def sum_of(number: Any, process_set: Any) -> Any:
    """The sum over the ranks."""
    # Without a name, it would have a number that counts this rank's operations, of all sets.
    return hvd.allreduce(number, name="keras.sum_of", op=hvd.Sum, process_set=process_set)


def complete(
    optimizer: Any, grads: list[Any], variables: Sequence[Any], process_set: Any
) -> list[Any]:
    """Zeros where another rank alone has a gradient; None where no rank has. Collective.

    Args:
        optimizer: that accumulates, so that most steps need nothing; None: each step does.
    """
    steps = getattr(optimizer, "gradient_accumulation_steps", None)
    if not grads or (steps and (int(optimizer._iterations) + 1) % steps):
        return grads
    here = torch.tensor([float(grad is not None) for grad in grads])
    anywhere = sum_of(here, process_set).tolist()
    return [
        torch.zeros_like(v.value) if g is None and ranks else g
        for g, v, ranks in zip(grads, variables, anywhere, strict=True)
    ]


def is_sparse(_grad: Any) -> bool:
    """No gradient has some rows only."""
    return False


def values_of(grad: Any) -> Any:
    """The numbers of a gradient."""
    return grad


def scaled(grad: Any, factor: Any) -> Any:
    """The gradient, times a factor."""
    return grad * factor
