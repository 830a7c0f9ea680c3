"""Collectives that move tensors between the ranks as they are; matched by name as in `reducing`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ddl
import tensorflow as tf

from ddl_tensorflow.library import (
    call,
    gradient_name,
    label_of,
    ready,
    reduced_gradients,
    to_tensor,
)


def broadcast(x: Any, root: int = 0, name: str = "") -> tf.Tensor:
    """Give every rank the `x` of rank `root`.

    Args:
        x: tensor or variable of any type but strings, of the same shape on all ranks.
        root: the rank whose values count.
        name: by which the ranks match the call.

    Returns:
        A new tensor; a variable is not changed. The gradient is summed up on rank `root`, and zero
        on the others.

    Raises:
        TypeError: a type that cannot be moved.
        tf.errors.InvalidArgumentError: a bad root, or the ranks disagree.
        tf.errors.AbortedError: a rank is lost or late.
    """
    return broadcast_n([x], root, name)[0]


bcast = broadcast


def broadcast_n(tensors: Sequence[Any], root: int = 0, name: str = "") -> list[tf.Tensor]:
    """Do `broadcast` on several tensors, by one operation."""
    ready()
    given = [_movable("broadcast", x, i) for i, x in enumerate(tensors)]
    return list(call("ddl_broadcast", given, root=root, name=name)) if given else []


def allgather(x: Any, name: str = "") -> tf.Tensor:
    """Put together the rows of all ranks, on every rank.

    Args:
        x: tensor or variable of any type but strings and of at least one dimension; the ranks may
            differ in the first one.
        name: by which the ranks match the call.

    Returns:
        The rows of rank 0, then those of rank 1, and so on. The gradient of a rank's rows is the
        sum of the gradients that the ranks have for them.

    Raises:
        As `broadcast`.
    """
    result, _ = allgather_rows(x, name)
    return result


def allgather_rows(x: Any, name: str = "") -> tuple[tf.Tensor, tf.Tensor]:
    """Do `allgather`; also returns how many rows each rank gave, int64 of shape (size,)."""
    ready()
    result, rows = call("ddl_allgather", _movable("allgather", x, 0), name=name)
    return result, rows


def alltoall(x: Any, splits: Any = None, name: str = "") -> tuple[tf.Tensor, tf.Tensor]:
    """Send every rank its share of the rows of `x`.

    Args:
        x: tensor or variable of any type but strings and of at least one dimension.
        splits: how many rows each rank gets, whole numbers of shape (size,); even shares if not
            given.
        name: by which the ranks match the call.

    Returns:
        The rows from rank 0, then those from rank 1, and so on; and how many each has sent, int64
        of shape (size,).

    Raises:
        As `broadcast`.
    """
    ready()
    shares = tf.constant([], tf.int64) if splits is None else tf.cast(splits, tf.int64)
    result, rows = call("ddl_alltoall", _movable("alltoall", x, 0), shares, name=name)
    return result, rows


def _movable(what: str, x: Any, index: int) -> tf.Tensor:
    tensor = to_tensor(x)
    if tensor.dtype in (tf.string, tf.variant, tf.resource):
        raise TypeError(
            f"{what}: {label_of(x, index)}: {tensor.dtype.name} tensors cannot be sent; use numbers"
        )
    return tensor


@tf.RegisterGradient("DdlBroadcast")
def _gradient_of_broadcast(operation: Any, *grads: Any) -> list[Any]:
    sums = reduced_gradients(operation, grads, "sum")
    if ddl.rank() == operation.get_attr("root"):
        return sums
    return [None if one is None else tf.zeros_like(one) for one in sums]


@tf.RegisterGradient("DdlAllgather")
def _gradient_of_allgather(operation: Any, grad: tf.Tensor, _: Any) -> tf.Tensor:
    (total,) = call("ddl_allreduce", [grad], op="sum", name=gradient_name(operation))
    rows = operation.outputs[1]
    begin = tf.reduce_sum(rows[: ddl.rank()])
    return total[begin : begin + rows[ddl.rank()]]


@tf.RegisterGradient("DdlAlltoall")
def _gradient_of_alltoall(operation: Any, grad: tf.Tensor, _: Any) -> tuple[tf.Tensor, None]:
    name = gradient_name(operation)
    result, _rows = call("ddl_alltoall", grad, operation.outputs[1], name=name)
    return result, None
