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
"""Keras' variables by way of NumPy: for the backends whose arrays NumPy can see.

Every operation has a name. Without one it would be named after a count of this rank's operations in
all process sets, and ranks outside a set count fewer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import horovod.torch as hvd
import keras
import numpy as np
import torch


def positions(groups: Any, variables: Sequence[Any], there: Sequence[int]) -> list[list[int]]:
    """The places of the gradients that go together.

    Args:
        groups: their number, lists of variables, or None: each by itself.
        variables: one for each gradient.
        there: the places of the gradients that are not None.
    """
    if groups is None:
        return [[i] for i in there]
    if not isinstance(groups, list):
        return [list(part) for part in np.array_split(there, groups) if len(part)]
    place = {id(variables[i]): i for i in there}
    found = [[place.pop(id(v)) for v in group if id(v) in place] for group in groups]
    return [group for group in found if group] + [[i] for i in place.values()]


def broadcast(value: Any, root_rank: int) -> np.ndarray:
    """The root's value, of any type that NumPy has."""
    array = np.ascontiguousarray(value)
    sent = torch.from_numpy(array.reshape(-1).view(np.uint8).copy())
    received = hvd.broadcast_(sent, root_rank, "keras.variable") if array.nbytes else sent
    return np.asarray(received.numpy().view(array.dtype).reshape(np.shape(value)))


def broadcast_variables(variables: Iterable[Any], root_rank: int) -> None:
    """Assign the root's values."""
    for variable in variables:
        variable.assign(broadcast(keras.ops.convert_to_numpy(variable), root_rank))


def synchronized(model: Any) -> Any:
    """The model, whose variables have their values: JAX keeps them elsewhere while it trains."""
    if hasattr(model, "jax_state_sync"):
        model.jax_state_sync()
    return model


def variables_of(model: Any) -> Iterator[Any]:
    """What training changes; the states of random generators are every rank's own."""
    yield from model.weights
    if model.optimizer is not None:
        yield from model.optimizer.variables


def values_form(operation: Callable[..., Any]) -> Callable[..., Any]:
    """An operation of Horovod on PyTorch's tensors, for whatever NumPy takes."""

    def call(_backend: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
        array = np.ascontiguousarray(keras.ops.convert_to_numpy(value))
        tensor = torch.from_numpy(array.reshape(np.shape(value)).copy())
        return keras.ops.convert_to_tensor(operation(tensor, *args, **kwargs).numpy())

    return call


@values_form
def allreduce(
    tensor: Any,
    name: str | None,
    average: bool,
    prescale_factor: float,
    postscale_factor: float,
    op: Any,
    compression: Any,
) -> Any:
    """The reduced value, on Keras' backend."""
    return hvd.allreduce(
        tensor,
        name=name or "keras.allreduce",
        compression=compression,
        op=op or (hvd.Average if average else hvd.Sum),
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
    )


@values_form
def allgather(tensor: Any, name: str | None) -> Any:
    """The rows of all ranks."""
    return hvd.allgather(tensor, name=name or "keras.allgather")


@values_form
def broadcast_value(tensor: Any, root_rank: int, name: str | None) -> Any:
    """The root's value."""
    return hvd.broadcast(tensor, root_rank, name=name or "keras.broadcast")


@values_form
def reducescatter(tensor: Any, name: str | None, op: Any) -> Any:
    """This rank's rows of the reduced value."""
    return hvd.reducescatter(tensor, name=name or "keras.reducescatter", op=op)


def broadcast_global_variables(_backend: Any, _root_rank: int) -> None:
    """Refuse: it is for TensorFlow's graphs."""
    raise RuntimeError(
        "broadcast_global_variables() knows the variables of TensorFlow's graphs alone: give fit() "
        "a BroadcastGlobalVariablesCallback."
    )
