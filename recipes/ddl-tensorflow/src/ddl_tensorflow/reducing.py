"""Collectives that reduce tensors over the ranks: eagerly, in `tf.function` and in `fit`.

Ranks match calls by name, so they may run in different orders on different ranks. Without a `name`,
a call has a number in its graph, so all ranks must make these calls in the same order. The n-th
call of a name on one rank is matched by the n-th on the others. In a graph's loop, an iteration is
matched by the same one on the others.

Tensors on a GPU are copied to the host's memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import ddl
import tensorflow as tf

from ddl_tensorflow import sessions
from ddl_tensorflow.library import (
    call,
    check_reducible,
    gradient_name,
    label_of,
    ready,
    reduced_gradients,
    to_tensor,
)
from ddl_tensorflow.moving import allgather_rows


def allreduce(x: Any, op: str = "sum", name: str = "") -> Any:
    """Reduce `x` element by element over the ranks; all get the result, bit by bit the same.

    Args:
        x: tensor or variable, of the same shape on all ranks; float16, bfloat16, float32, float64,
            int8, uint8, int32 or int64. `tf.IndexedSlices` are gathered, not summed up.
        op: "sum", "average" (not for integers), "min", "max" or "prod".
        name: by which the ranks match the call.

    Returns:
        A tensor like `x`, or IndexedSlices. Its gradient, for sums and averages, is the same
        reduction of the gradients.

    Raises:
        TypeError, ValueError: a type or operation that cannot be reduced.
        tf.errors.InvalidArgumentError: the ranks disagree; the message says in what.
        tf.errors.AbortedError: a rank is lost or late.
    """
    (result,) = _reduce([x], op, name, None)
    return result


def allreduce_n(grads: Sequence[Any], average: bool = True, name: str = "") -> list[Any]:
    """Sum or average several tensors at once: one message, not one per tensor.

    Args:
        grads: as for `allreduce`; None stays None.
        average: divide by the number of ranks.
        name: by which the ranks match the call.

    Returns:
        The results, in the order of `grads`.

    Raises:
        As `allreduce`.
    """
    return _reduce(grads, "average" if average else "sum", name, None)


def grads_reduce(
    grads_and_vars: Iterable[tuple[Any, Any]], average: bool = True, name: str = ""
) -> list[tuple[Any, Any]]:
    """Sum or average gradients: between `GradientTape.gradient` and `apply_gradients`.

    Args:
        grads_and_vars: pairs of a gradient, as for `allreduce_n`, and its variable.
        average: divide by the number of ranks.
        name: by which the ranks match the call.

    Returns:
        Pairs of the reduced gradient and its variable.

    Raises:
        As `allreduce`.
    """
    pairs = list(grads_and_vars)
    labels = [f"gradient of {label_of(variable, i)}" for i, (_, variable) in enumerate(pairs)]
    results = reduce_labelled([grad for grad, _ in pairs], labels, average, name)
    return [(result, variable) for result, (_, variable) in zip(results, pairs, strict=True)]


def reduce_labelled(
    grads: Sequence[Any], labels: Sequence[str], average: bool = True, name: str = ""
) -> list[Any]:
    """Do `allreduce_n` on gradients that messages call by `labels`."""
    results = _reduce(grads, "average" if average else "sum", name, labels)
    for result in results:
        sessions.mark(result)
    return results


def reduce_scatter(x: Any, op: str = "sum", name: str = "") -> tf.Tensor:
    """Reduce `x` over the ranks and give each rank its block of rows of the result.

    Args:
        x: as for `allreduce`; its first dimension must be a multiple of the number of ranks.
        op: as for `allreduce`.
        name: by which the ranks match the call.

    Returns:
        A tensor of shape (x.shape[0] // size, *x.shape[1:]). Its gradient, for sums and averages,
        is the gathered gradient.

    Raises:
        As `allreduce`.
    """
    ready()
    tensor = to_tensor(x)
    check_reducible("reduce_scatter", label_of(x, 0), tensor.dtype, op)
    result = call("ddl_reduce_scatter", tensor, op=op, name=name)
    if tensor.shape.rank and tensor.shape[0] is not None:
        result.set_shape([tensor.shape[0] // ddl.size(), *tensor.shape[1:]])
    return result


def _reduce(tensors: Sequence[Any], op: str, name: str, labels: Sequence[str] | None) -> list[Any]:
    """The dense ones by one operation, each sparse one by two."""
    ready()
    missing = [str(i) for i, x in enumerate(tensors) if x is None]
    if missing:  # ranks that differ in them shall not match: the others may have the same shapes
        name = f"{name or 'gradients'}/without {','.join(missing)}"
    results: list[Any] = list(tensors)
    dense: dict[int, tf.Tensor] = {}
    for i, x in enumerate(tensors):
        if x is None:
            continue
        label = label_of(x, i, labels)
        if isinstance(x, tf.IndexedSlices):
            check_reducible("allreduce", label, x.dtype, op)
            results[i] = _reduce_slices(x, op, f"{name or 'slices'}/{i}", label)
        else:
            dense[i] = to_tensor(x)
            check_reducible("allreduce", label, dense[i].dtype, op)
    if dense:
        names = [label_of(tensors[i], i, labels) for i in dense]
        reduced = call("ddl_allreduce", list(dense.values()), op=op, name=name, labels=names)
        for i, result in zip(dense, reduced, strict=True):
            results[i] = result
    return results


def _reduce_slices(x: tf.IndexedSlices, op: str, name: str, label: str) -> tf.IndexedSlices:
    """The slices of all ranks; users add up slices that come twice."""
    if op not in ("sum", "average"):
        raise ValueError(f"allreduce: {label}: tf.IndexedSlices can be summed and averaged only")
    values, _ = allgather_rows(x.values, f"{name}/values")
    indices, _ = allgather_rows(x.indices, f"{name}/indices")
    if op == "average":
        values = values / tf.cast(ddl.size(), values.dtype)
    return tf.IndexedSlices(values, indices, x.dense_shape)


def _check_differentiable(what: str, op: str) -> None:
    if op not in ("sum", "average"):
        raise LookupError(f"{what}: there is no gradient of the operation {op!r}")


@tf.RegisterGradient("DdlAllreduce")
def _gradient_of_allreduce(operation: Any, *grads: Any) -> list[Any]:
    op = operation.get_attr("op").decode()
    _check_differentiable("allreduce", op)
    return reduced_gradients(operation, grads, op)


@tf.RegisterGradient("DdlReduceScatter")
def _gradient_of_reduce_scatter(operation: Any, grad: tf.Tensor) -> tf.Tensor:
    op = operation.get_attr("op").decode()
    _check_differentiable("reduce_scatter", op)
    gathered, _ = allgather_rows(grad, gradient_name(operation))
    return gathered / tf.cast(ddl.size(), gathered.dtype) if op == "average" else gathered
