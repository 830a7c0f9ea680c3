"""The bytes of each tensor of a graph."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf import meta_graph_pb2
from tensorflow.python.grappler import item

from lms_tensorflow.graph import ALIASES, Graph, Tensor
from lms_tensorflow.work import work_of


class Size(NamedTuple):
    """A tensor's elements and their type; None elements where nobody knows before it runs."""

    elements: int | None
    dtype: int
    #: The elements are those of the operation's largest input.
    estimated: bool = False

    @property
    def numeric(self) -> bool:
        """Whether it can be copied as bytes: no text, no resource, no reference."""
        known = tf.dtypes.as_dtype(self.dtype)
        return bool(known.size > 0 and not known._is_ref_dtype) and self.dtype not in _HANDLES

    @property
    def floating(self) -> bool:
        """Whether it has no whole numbers, of which shapes and indices are."""
        return bool(tf.dtypes.as_dtype(self.dtype).is_floating)

    @property
    def bytes(self) -> int:
        """Its bytes; 0 where nobody knows."""
        return (self.elements or 0) * int(tf.dtypes.as_dtype(self.dtype).size)


_HANDLES = (types_pb2.DT_STRING, types_pb2.DT_RESOURCE, types_pb2.DT_VARIANT)


class Sizes:
    """The sizes of all tensors of a graph, and whether some depend on the step's inputs.

    Args:
        graph: the operations.
        graph_def: the `GraphDef` that they are of.
        batch_size: stands for unknown first dimensions of the graph's inputs; None where the
        program did not say.
    """

    def __init__(self, graph: Graph, graph_def: Any, batch_size: int | None) -> None:
        self.of: dict[Tensor, Size] = {}
        self.unknown_inputs = unknown_inputs(graph_def)
        properties = _infer(graph, graph_def, batch_size)
        order = sorted(range(len(graph.operations)), key=lambda i: graph.operations[i].level)
        for i in order:
            operation = graph.operations[i]
            outputs = properties.get(operation.name, [])
            inputs = [self.of[one] for one in operation.inputs if one in self.of]
            for port, output in enumerate(outputs):
                self.of[i, port] = _size(operation.op, output, inputs)
        #: The memory that kernels take for themselves while they run, by operation.
        self.work = work_of(graph, graph_def, properties)
        #: Bytes of the variables that the graph is given, by their argument, and by device.
        self.handles = _handles(graph_def)
        self.variables: dict[str, int] = defaultdict(int)
        for name, size in self.handles.items():
            self.variables[graph.operations[graph.index[name]].device] += size
        self._devices = [operation.device for operation in graph.operations]

    def estimated(self, device: str) -> int:
        """The number of a device's tensors whose size is not sure."""
        return sum(
            size.estimated and self._devices[tensor[0]] == device
            for tensor, size in self.of.items()
        )


def unknown_inputs(graph_def: Any) -> bool:
    """Whether the first dimension of something that the graph is given is not known."""
    return any(shape.dim[0].size < 0 for node in graph_def.node for shape in _open_shapes(node))


def open_inputs(graph_def: Any) -> list[tuple[int, int, int]]:
    """The tensors that the graph is given with an unknown first dimension: node, port, type."""
    found = []
    for i, node in enumerate(graph_def.node):
        if node.op == "IteratorGetNext":
            shapes = list(node.attr["output_shapes"].list.shape)
            types = list(node.attr["output_types"].list.type)
        elif node.op in ("_Arg", "Placeholder"):
            shapes = _open_shapes(node)[:1]
            types = [node.attr["T" if node.op == "_Arg" else "dtype"].type]
        else:
            continue
        for port, (shape, dtype) in enumerate(zip(shapes, types, strict=False)):
            if shape.dim and shape.dim[0].size < 0 and Size(0, dtype).numeric:
                found.append((i, port, dtype))
    return found


def _open_shapes(node: Any) -> list[Any]:
    if node.op == "IteratorGetNext":
        return [one for one in node.attr["output_shapes"].list.shape if one.dim]
    if node.op in ("_Arg", "Placeholder"):
        shapes = node.attr["_output_shapes"].list.shape or [node.attr["shape"].shape]
        return [one for one in shapes if one.dim]
    return []


def _infer(graph: Graph, graph_def: Any, batch_size: int | None) -> dict[str, list[Any]]:
    """The properties of each operation's results by TensorFlow's own static inference."""
    meta = meta_graph_pb2.MetaGraphDef()
    meta.graph_def.CopyFrom(graph_def)
    for node in meta.graph_def.node:
        for shape in _open_shapes(node) if batch_size else ():
            if shape.dim[0].size < 0:
                shape.dim[0].size = batch_size
    for node in meta.graph_def.node:
        if node.op == "Placeholder":  # of a session
            _hold_place(node, node.attr["dtype"].type, node.attr["shape"].shape)
        elif node.op == "_Arg" and node.attr["_output_shapes"].list.shape:
            _hold_place(node, node.attr["T"].type, node.attr["_output_shapes"].list.shape[0])
    read = {source for one in graph.operations for source in graph.sources(one)}
    ends = [one.name for i, one in enumerate(graph.operations) if i not in read]
    meta.collection_def["train_op"].node_list.value.extend(ends)
    properties: dict[str, list[Any]] = item.Item(meta).GetOpProperties()
    return properties


def _hold_place(node: Any, dtype: int, shape: Any) -> None:
    """Make an argument something that inference knows the shape of, as it does not of feeds."""
    if shape.unknown_rank or any(dim.size < 0 for dim in shape.dim):
        return
    held = type(node)(name=node.name, op="ImmutableConst", device=node.device)
    held.attr["dtype"].type = dtype
    held.attr["shape"].shape.CopyFrom(shape)
    held.attr["memory_region_name"].s = b"none"
    node.CopyFrom(held)


def _size(op: str, output: Any, inputs: list[Size]) -> Size:
    dims = [dim.size for dim in output.shape.dim]
    if not output.shape.unknown_rank and all(dim >= 0 for dim in dims):
        elements = 1
        for dim in dims:
            elements *= dim
        return Size(elements, output.dtype)
    if op in ALIASES and inputs:
        return Size(inputs[0].elements, output.dtype, inputs[0].estimated)
    known = [one.elements for one in inputs if one.elements is not None]
    return Size(max(known), output.dtype, True) if known else Size(None, output.dtype)


def _handles(graph_def: Any) -> dict[str, int]:
    found: dict[str, int] = {}
    for node in graph_def.node:
        if node.op != "_Arg":
            continue
        shapes = node.attr["_handle_shapes"].list.shape
        for shape, dtype in zip(shapes, node.attr["_handle_dtypes"].list.type, strict=False):
            if not shape.unknown_rank and all(dim.size >= 0 for dim in shape.dim):
                elements = 1
                for dim in shape.dim:
                    elements *= dim.size
                size = Size(elements, dtype)
                if size.numeric:
                    found[node.name] = found.get(node.name, 0) + size.bytes
    return found
