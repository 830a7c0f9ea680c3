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
"""Keras on TensorFlow: Horovod's operations are part of its graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import horovod.tensorflow as hvd
import tensorflow as tf
from horovod.tensorflow.util import tf_variable

Reduce = Callable[[Sequence[Any], Sequence[Any]], Sequence[Any]]


def reference(variable: Any) -> Any:
    """A key for a variable of TensorFlow or Keras."""
    return tf_variable(variable).ref()


def make_allreduce_grads(
    name: str,
    device_dense: str,
    device_sparse: str,
    compression: Any,
    sparse_as_dense: bool,
    op: Any,
    gradient_predivide_factor: float,
    groups: Any,
    process_set: Any,
) -> Reduce:
    """Make the function that reduces gradients; another one inside each tf.function."""
    reduce = hvd._make_allreduce_grads_fn(
        name,
        device_dense,
        device_sparse,
        compression,
        sparse_as_dense,
        op,
        gradient_predivide_factor,
        groups,
        process_set=process_set,
    )

    def allreduce(grads: Sequence[Any], variables: Sequence[Any]) -> Sequence[Any]:
        results: Sequence[Any] = reduce(grads, [tf_variable(v) for v in variables])
        return results

    return allreduce


def when_updating(_optimizer: Any, function: Callable[[Any], Any], grads: Any) -> Any:
    """Call it: Keras asks inside its condition."""
    return function(grads)


def sum_of(number: Any, process_set: Any) -> Any:
    """The sum over the ranks."""
    return hvd.allreduce(number, op=hvd.Sum, process_set=process_set)


def complete(_optimizer: Any, grads: list[Any], _variables: Any, _process_set: Any) -> list[Any]:
    """The gradients: which ones there are is part of the compiled program."""
    return grads


def is_sparse(grad: Any) -> bool:
    """Whether the gradient has some rows only."""
    return isinstance(grad, tf.IndexedSlices)


def values_of(grad: Any) -> Any:
    """The numbers of a gradient."""
    return grad.values if is_sparse(grad) else grad


def scaled(grad: Any, factor: Any) -> Any:
    """The gradient, times a factor."""
    if is_sparse(grad):
        values = grad.values * tf.cast(factor, grad.values.dtype)
        return tf.IndexedSlices(values, grad.indices, grad.dense_shape)
    return grad * tf.cast(factor, grad.dtype)
