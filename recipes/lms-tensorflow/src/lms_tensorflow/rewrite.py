"""Puts a plan's swaps into a GraphDef.

A swapped tensor goes through two copies on the host: `swap_out`, as soon as it is made, and for
each stretch of use a `swap_in` that waits for its trigger. Both are Snapshot, which TensorFlow's
other optimizers leave alone; the second stands on the host too, so that the way back to the
device begins after the trigger. TensorFlow adds the transfers between the devices itself.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from lms_tensorflow.graph import Graph, Tensor
from lms_tensorflow.plan import Plan
from lms_tensorflow.schedule import Stretch

#: In the names of what is put in: those of their tensors, and this after them. TensorFlow sorts
#: the inputs of sums and products by name, and would add in another order otherwise, to another
#: last bit. "-" is the first of all characters that names have.
MARK = "-lms_"


def is_rewritten(graph_def: Any) -> bool:
    """Whether this went through here before: TensorFlow optimizes a graph more than once."""
    return any(MARK in node.name for node in graph_def.node)


def rewrite(graph_def: Any, plan: Plan) -> None:
    """Change the `GraphDef` that the plan was made of."""
    outs: dict[Tensor, str] = {}
    for swap in plan.swaps:
        for stretch in swap.stretches:
            for source in stretch.sources():
                dtype = plan.sizes.of[source].dtype
                if source not in outs:
                    outs[source] = _name(plan.graph, source, "out")
                    text = _text(plan.graph, source)
                    node = _snapshot(graph_def, outs[source], plan.host, dtype, text)
                    if plan.options.sync_mode & 1:
                        _hold(graph_def, plan, stretch.after + 1, node.name)
                name = _name(plan.graph, source, f"in_{stretch.first}")
                trigger = plan.graph.operations[stretch.trigger].name
                _snapshot(graph_def, name, plan.host, dtype, outs[source], f"^{trigger}")
                _redirect(graph_def, plan.graph, stretch, source, name)
                if plan.options.sync_mode & 2:
                    _hold(graph_def, plan, stretch.first, name)


def _snapshot(graph_def: Any, name: str, device: str, dtype: int, *inputs: str) -> Any:
    node = graph_def.node.add(name=name, op="Snapshot", device=device, input=inputs)
    node.attr["T"].type = dtype
    return node


def _redirect(graph_def: Any, graph: Graph, stretch: Stretch, source: Tensor, name: str) -> None:
    for use in stretch.served():
        if use.source == source:
            node = graph_def.node[use.reader]
            for i, tensor in enumerate(graph.operations[use.reader].inputs):
                if tensor == source:
                    node.input[i] = name


def _hold(graph_def: Any, plan: Plan, level: int, name: str) -> None:
    """Let the device's operations of a level wait for a copy."""
    for i, operation in enumerate(plan.graph.operations):
        if operation.level == level and operation.device == plan.device:
            if operation.guards or operation.op == "_Retval":
                continue
            graph_def.node[i].input.append(f"^{name}")


def _name(graph: Graph, tensor: Tensor, what: str) -> str:
    return f"{graph.operations[tensor[0]].name}{MARK}{tensor[1]}_{what}"


def _text(graph: Graph, tensor: Tensor) -> str:
    name = graph.operations[tensor[0]].name
    return f"{name}:{tensor[1]}" if tensor[1] else name


def refuse(graph_def: Any, host: str, message: str) -> None:
    """Let the graph fail with a message before anything else runs."""
    names = [f"program{MARK}{part}" for part in ("false", "message", "refuse")]
    held = [node for node in graph_def.node if node.op not in ("_Arg", "Const", "_Retval")]
    for name, value in zip(names, (tf.constant(False), tf.constant(message)), strict=False):
        node = graph_def.node.add(name=name, op="Const", device=host)
        node.attr["dtype"].type = value.dtype.as_datatype_enum
        node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value))
    node = graph_def.node.add(name=names[2], op="Assert", device=host, input=names[:2])
    node.attr["T"].list.type.append(tf.string.as_datatype_enum)
    node.attr["summarize"].i = 1
    for node in held:
        node.input.append(f"^{names[2]}")
