"""The memory that kernels take for themselves, beside their results.

TensorFlow does not tell it before the kernels run. So these are upper bounds, for the kernels of
TensorFlow 2.21. They do not include the memory that the libraries for GPUs take for convolutions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from lms_tensorflow.graph import Graph

_REDUCTIONS = frozenset({"Mean", "Sum", "Prod", "Max", "Min", "All", "Any", "EuclideanNorm"})

#: Tensors with so many runs of dimensions, kept and reduced in turn, are reduced as they lie in
#: memory.
_RUNS = 3

#: The gradient of a maximum's neighbourhood finds it again: a copy of it, and where it was.
_FOUND_AGAIN = 12


def work_of(graph: Graph, graph_def: Any, properties: dict[str, list[Any]]) -> dict[int, int]:
    """Bytes by operation, while it runs.

    Args:
        graph_def: the `GraphDef` that they are of.
        properties: those of each operation's results, by TensorFlow's inference.
    """
    found: dict[int, int] = {}
    for i, operation in enumerate(graph.operations):
        shapes = []
        for source, port in operation.inputs:
            outputs = properties.get(graph.operations[source].name, [])
            shapes.append(_shape(outputs[port]) if port < len(outputs) else None)
        outputs = properties.get(operation.name, [])
        size, on_cpu = 0, "/device:CPU:" in operation.device
        if operation.op == "Einsum" and outputs:
            equation = graph_def.node[i].attr["equation"].s.decode()
            moved = zip([*shapes, _shape(outputs[0])], _transposed(equation), strict=False)
            size = sum(_bytes(shape, outputs[0].dtype) for shape, there in moved if there)
        elif on_cpu and operation.op in _REDUCTIONS and len(shapes) == 2 and outputs:
            axes = _constant(graph_def.node[operation.inputs[1][0]])
            if axes is None or (shapes[0] is not None and _runs(shapes[0], axes) > _RUNS):
                size = _bytes(shapes[0], outputs[0].dtype)
        elif on_cpu and operation.op == "MaxPoolGrad" and len(shapes) > 1:
            size = _elements(shapes[1]) * _FOUND_AGAIN
        if size:
            found[i] = size
    return found


def _shape(output: Any) -> tuple[int, ...] | None:
    dims = tuple(dim.size for dim in output.shape.dim)
    known = not output.shape.unknown_rank and all(dim >= 0 for dim in dims)
    return dims if known else None


def _elements(shape: tuple[int, ...] | None) -> int:
    return int(np.prod(shape, dtype=np.int64)) if shape is not None else 0


def _bytes(shape: tuple[int, ...] | None, dtype: int) -> int:
    return _elements(shape) * int(tf.dtypes.as_dtype(dtype).size)


def _constant(node: Any) -> set[int] | None:
    if node.op != "Const":
        return None
    return {int(one) for one in np.ravel(tf.make_ndarray(node.attr["value"].tensor))}


def _transposed(equation: str) -> list[bool]:
    """Whether each input and the result are copied, transposed for a product of matrices."""
    given, _, result = equation.replace(" ", "").partition("->")
    inputs = given.split(",")
    if len(inputs) != 2 or "." in equation:
        return [True] * (len(inputs) + 1)
    left, right = inputs
    batch, contracted = set(left) & set(right) & set(result), (set(left) & set(right)) - set(result)
    order = {label: i for i, label in enumerate(dict.fromkeys(left + right + result))}

    def moves(labels: str, *kinds: set[str]) -> bool:
        wanted = "".join(
            "".join(sorted(kind & set(labels), key=order.__getitem__)) for kind in kinds
        )
        return labels != wanted

    free = [set(one) & set(result) - batch for one in inputs]
    found = [
        moves(one, batch, own, contracted) and moves(one, batch, contracted, own)
        for one, own in zip(inputs, free, strict=True)
    ]
    return [*found, moves(result, batch, *free)]


def _runs(shape: tuple[int, ...], axes: set[int]) -> int:
    """The number of runs of kept or reduced dimensions; those of one element are neither."""
    reduced = {axis % len(shape) for axis in axes} if shape else set()
    kinds = [i in reduced for i, size in enumerate(shape) if size != 1]
    return sum(i == 0 or kind != kinds[i - 1] for i, kind in enumerate(kinds))
