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
"""Keras on JAX: gradients are reduced inside the compiled step, by `ddl.jax`."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Sequence
from typing import Any

import horovod.torch as hvd
import jax
import jax.numpy as jnp
from horovod._keras.values import positions

reference = id
Reduce = Callable[[Sequence[Any], Sequence[Any]], Sequence[Any]]


def _import_ddl() -> Any:
    """Import ddl as a library alone: under `ddlrun` it would have all optimizers average."""
    options = os.environ.pop("DDL_OPTIONS", None)
    try:
        return importlib.import_module("ddl")
    finally:
        if options is not None:
            os.environ["DDL_OPTIONS"] = options


ddl = _import_ddl()


def _reduce(arrays: Any, op: str, process_set: Any) -> Any:
    try:
        from ddl_jax.functions import allreduce
    except ModuleNotFoundError:
        raise RuntimeError(
            "Horovod reduces gradients of Keras models on JAX by the package ddl-jax, which is not "
            "installed; install it: conda install ddl-jax"
        ) from None
    ddl.init()
    if (ddl.rank(), ddl.size()) != (hvd.rank(), hvd.size()):
        raise RuntimeError(
            f"Horovod: Keras on JAX reduces by ddl, which has {ddl.size()} ranks where Horovod has "
            f"{hvd.size()}: without MPI, as under horovodrun --gloo and in elastic jobs, each rank "
            "would train alone; start the job by ddlrun, or by horovodrun without --gloo"
        )
    ranks = process_set.ranks if process_set.process_set_id else None
    return allreduce(arrays, op, ranks)


def make_allreduce_grads(
    _name: str,
    _device_dense: str,
    _device_sparse: str,
    compression: Any,
    _sparse_as_dense: bool,
    op: Any,
    gradient_predivide_factor: float,
    groups: Any,
    process_set: Any,
) -> Reduce:
    """Make the function that reduces gradients. Keras has no sparse ones on JAX."""
    types = {hvd.Compression.fp16: jnp.float16, hvd.Compression.bf16: jnp.bfloat16}
    if compression is not hvd.Compression.none and compression not in types:
        raise ValueError(
            "compression: on JAX it must be one of Compression.none, Compression.fp16 and "
            "Compression.bf16."
        )
    small = types.get(compression)
    factor = gradient_predivide_factor if op == hvd.Average else 1.0

    def reduced(arrays: list[Any]) -> list[Any]:
        sent = [one / factor if factor != 1 else one for one in arrays]
        sent = [one.astype(small) if small else one for one in sent]
        sums = _reduce(sent, "mean" if op == hvd.Average else "sum", process_set)
        back = [one.astype(to.dtype) for one, to in zip(sums, arrays, strict=True)]
        return [one * factor if factor != 1 else one for one in back]

    def allreduce(grads: Sequence[Any], variables: Sequence[Any]) -> Sequence[Any]:
        results = list(grads)
        there = [i for i, grad in enumerate(grads) if grad is not None]
        # Without groups, ddl.jax itself joins what is small.
        together = [there] if groups is None else positions(groups, variables, there)
        for group in together:
            for i, one in zip(group, reduced([grads[i] for i in group]), strict=True):
                results[i] = one
        return results

    return allreduce


def when_updating(optimizer: Any, function: Callable[[Any], Any], grads: Any) -> Any:
    """Call it in steps that update: where an optimizer accumulates, Keras asks in each step."""
    steps = optimizer.gradient_accumulation_steps
    if not steps:
        return function(grads)
    is_update = (optimizer._iterations + 1) % steps == 0  # `iterations` counts updates
    return jax.lax.cond(is_update, lambda: function(grads), lambda: list(grads))


def sum_of(number: Any, process_set: Any) -> Any:
    """The sum over the ranks."""
    return _reduce(number, "sum", process_set)


def complete(_optimizer: Any, grads: list[Any], _variables: Any, _process_set: Any) -> list[Any]:
    """The gradients: which ones there are is part of the compiled program."""
    return grads


def is_sparse(_grad: Any) -> bool:
    """No gradient has some rows only."""
    return False


def values_of(grad: Any) -> Any:
    """The numbers of a gradient."""
    return grad


def scaled(grad: Any, factor: Any) -> Any:
    """The gradient, times a factor."""
    return (grad * factor).astype(grad.dtype)
