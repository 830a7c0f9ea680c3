"""The operations of `_ops.so`, and the common code of their callers."""

from __future__ import annotations

import atexit
import ctypes
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import ddl
import tensorflow as tf
from ddl import _exit
from tensorflow.python.framework import auto_control_deps

_PATH = str(Path(__file__).with_name("_ops.so"))
ops: Any = tf.load_op_library(_PATH)

# A graph runs operations with a state one after the other, unless they are known to need no order.
# They run whether or not their results are used, as the other ranks wait for them.
auto_control_deps.MUST_RUN_ORDER_INSENSITIVE_STATEFUL_OPS |= {
    "DdlAllgather",
    "DdlAllreduce",
    "DdlAlltoall",
    "DdlBroadcast",
    "DdlReduceScatter",
}

REDUCIBLE = (
    tf.float16,
    tf.bfloat16,
    tf.float32,
    tf.float64,
    tf.int32,
    tf.int64,
    tf.int8,
    tf.uint8,
)
REDUCTIONS = ("sum", "average", "min", "max", "prod")


def ready() -> int:
    """Start ddl unless the program or `ddlrun` has; the number of ranks."""
    if not ddl.initialized():
        ddl.init()
    _leave_at_exit()
    return ddl.size()


@cache
def _leave_at_exit() -> None:
    """Register the end once, and after ddl's start, so that ddl's own exit handler comes later."""
    atexit.register(_shut_down)


def _shut_down() -> None:
    """Tell the ranks that wait for this one, or will. After an exception ddl ends the job."""
    if _exit.is_the_ranks() and _exit.failure() is None:
        ctypes.CDLL(_PATH).ddl_tensorflow_shutdown()


def call(operation: str, *inputs: Any, name: str, **attributes: Any) -> Any:
    """Run one of `ops`, or put it into the graph at hand.

    In a graph its name is outside all scopes. Ranks match operations without a `name` by that, but
    Keras's scopes have numbers that go by the layers each rank has made. Nothing says which of two
    operations of one name comes first, so the names differ.
    """
    if tf.executing_eagerly():
        return getattr(ops, operation)(*inputs, tensor_name=name, **attributes)
    graph = tf.compat.v1.get_default_graph()
    with graph.name_scope(None):
        unique = str(graph.unique_name(name)) if name else ""
        return getattr(ops, operation)(*inputs, tensor_name=unique, **attributes)


def gradient_name(operation: Any) -> str:
    """The name by which the ranks match the gradient of an operation."""
    name = operation.get_attr("tensor_name").decode()
    return f"{name}/gradient" if name else ""


def reduced_gradients(operation: Any, grads: Sequence[Any], op: str) -> list[Any]:
    """Reduce the gradients of an operation's results; None, as whole numbers have, stays None."""
    results = list(grads)
    there = [i for i, grad in enumerate(grads) if grad is not None]
    if there:
        given = [grads[i] for i in there]
        name = gradient_name(operation)
        reduced = call("ddl_allreduce", given, op=op, name=name)
        for i, one in zip(there, reduced, strict=True):
            results[i] = one
    return results


def to_tensor(x: Any) -> tf.Tensor:
    """A tensor of a tensor, a variable of TensorFlow or Keras, or an array."""
    return tf.convert_to_tensor(getattr(x, "value", x) if is_keras_variable(x) else x)


def is_keras_variable(x: Any) -> bool:
    """Whether this is Keras's own kind of variable."""
    return type(x).__module__.startswith("keras.")


def check_reducible(what: str, label: str, dtype: tf.DType, op: str) -> None:
    """TypeError or ValueError, with the name of the tensor, unless ddl can reduce it."""
    if op not in REDUCTIONS:
        raise ValueError(f"{what}: unknown operation {op!r}; use one of {', '.join(REDUCTIONS)}")
    if dtype not in REDUCIBLE:
        names = ", ".join(one.name for one in REDUCIBLE)
        raise TypeError(f"{what}: {label}: {dtype.name} cannot be reduced; use one of {names}")
    if op == "average" and dtype.is_integer:
        raise ValueError(
            f"{what}: {label}: the average of integers ({dtype.name}) is not one; sum and divide, "
            "or use a floating-point type"
        )


def label_of(x: Any, index: int, labels: Sequence[str] | None = None) -> str:
    """The tensor's name in messages."""
    if labels:
        return labels[index]
    name = x.name if isinstance(x, tf.Variable) else getattr(x, "path", "")
    return str(name or f"tensor {index}")
