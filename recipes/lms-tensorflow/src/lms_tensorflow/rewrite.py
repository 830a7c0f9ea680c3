"""Puts a plan's swaps into a GraphDef.

A swapped tensor goes through two copies on the host: `swap_out`, as soon as it is made, and for
each stretch of use a `swap_in` that waits for its trigger. Both are Snapshot, which TensorFlow
leaves alone; the second stands on the host too, so that the way back to the device begins after
the trigger. TensorFlow adds the transfers between the devices itself.

An order of the plan becomes control edges that hold the operations to it. A step then waits for the
swap-outs whose memory it counts on.
"""

from __future__ import annotations

import re
from typing import Any

import tensorflow as tf

from lms_tensorflow.graph import Graph, Tensor
from lms_tensorflow.plan import Plan
from lms_tensorflow.schedule import Stretch
from lms_tensorflow.sizes import open_inputs

#: New operations are named after their tensor, with this mark behind it. "-" is the first of all
#: characters in names, so they stay at their tensor's position where TensorFlow sorts by names.
MARK = "-lms_"

#: An attribute of operations that end a step.
ORDERED = "_lms_step"


def is_rewritten(graph_def: Any) -> bool:
    """Whether this went through here before: TensorFlow optimizes some functions twice."""
    return any(MARK in node.name or ORDERED in node.attr for node in graph_def.node)


def rewrite(graph_def: Any, plan: Plan) -> None:
    """Change the `GraphDef` that the plan was made of."""
    outs: dict[Tensor, str] = {}
    if plan.order:
        for waits, end in plan.order.edges:
            _wait(graph_def.node[waits], plan.graph.operations[end].name)
        for step, end in enumerate(plan.order.ends):
            graph_def.node[end].attr[ORDERED].i = step
        for node in graph_def.node:
            if node.op == "Enter":  # the rounds of a loop, of which the plan counts one
                node.attr["parallel_iterations"].i = 1
    for swap in plan.swaps:
        for count, stretch in enumerate(swap.stretches):
            for source in stretch.sources():
                if source not in outs:
                    outs[source] = _name(plan.graph, source, "out")
                    text = _text(plan.graph, source)
                    _copy(graph_def, plan, source, outs[source], text)
                    if plan.order or plan.options.sync_mode & 1:
                        slack = 0 if count else swap.storage.made + plan.distances.behind
                        level = max(stretch.after, slack if plan.order else 0) + 1
                        _hold(graph_def, plan, level, outs[source])
                name = _name(plan.graph, source, f"in_{stretch.first}")
                trigger = plan.graph.operations[stretch.trigger].name
                _copy(graph_def, plan, source, name, outs[source], f"^{trigger}")
                _redirect(graph_def, plan.graph, stretch, source, name)
                if plan.options.sync_mode & 2:
                    _hold(graph_def, plan, stretch.first, name)


def _copy(graph_def: Any, plan: Plan, source: Tensor, name: str, *inputs: str) -> None:
    """A copy on the host.

    TensorFlow hands a tensor from one CPU to another as it is; there, as between GPU and CPU, the
    copy has a memory of its own.
    """
    op = "DeepCopy" if "/device:CPU:" in plan.device else "Snapshot"
    node = graph_def.node.add(name=name, op=op, device=plan.host, input=inputs)
    node.attr["T"].type = plan.sizes.of[source].dtype


def _redirect(graph_def: Any, graph: Graph, stretch: Stretch, source: Tensor, name: str) -> None:
    for use in stretch.served():
        if use.source == source:
            node = graph_def.node[use.reader]
            for i, tensor in enumerate(graph.operations[use.reader].inputs):
                if tensor == source:
                    node.input[i] = name


def _hold(graph_def: Any, plan: Plan, level: int, name: str) -> None:
    """Let the device's operations of a level wait for a copy."""
    if plan.order:
        for i in plan.order.starts.get(level, ()):
            _wait(graph_def.node[i], name)
        return
    for i, operation in enumerate(plan.graph.operations):
        if operation.level == level and operation.device == plan.device:
            if operation.guards or operation.op in ("_Retval", "Exit"):
                continue
            for j in plan.graph.groups.get(i, (i,)):
                _wait(graph_def.node[j], name)


def _wait(node: Any, name: str) -> None:
    if f"^{name}" not in node.input:
        node.input.append(f"^{name}")


def _name(graph: Graph, tensor: Tensor, what: str) -> str:
    return f"{graph.operations[tensor[0]].name}{MARK}{tensor[1]}_{what}"


def _text(graph: Graph, tensor: Tensor) -> str:
    name = graph.operations[tensor[0]].name
    return f"{name}:{tensor[1]}" if tensor[1] else name


def refuse(graph_def: Any, host: str, message: str, number: int) -> None:
    """Let the graph fail with a message before anything else runs; `refusal` gives the number."""
    names = [f"program{MARK}{part}" for part in ("false", "message", f"refuse_{number}")]
    held = [node for node in graph_def.node if node.op not in ("_Arg", "Const", "_Retval")]
    for name, value in zip(names, (False, message), strict=False):
        tensor = tf.make_tensor_proto(value)  # a session's thread may have a graph that is final
        node = graph_def.node.add(name=name, op="Const", device=host)
        node.attr["dtype"].type = tensor.dtype
        node.attr["value"].tensor.CopyFrom(tensor)
    node = graph_def.node.add(name=names[2], op="Assert", device=host, input=names[:2])
    node.attr["T"].list.type.append(tf.string.as_datatype_enum)
    node.attr["summarize"].i = 1
    for node in held:
        node.input.append(f"^{names[2]}")


def check_batch(graph_def: Any, host: str, batch_size: int, message: str, number: int) -> None:
    """Let the graph fail with a message, as `refuse` does, when a batch is larger than planned.

    What reads an input waits until its size is known to be small enough.
    """
    inputs = open_inputs(graph_def)
    readers = [(node, list(node.input)) for node in graph_def.node if node.op != "_Retval"]
    for count, (i, port, dtype) in enumerate(inputs):
        given = graph_def.node[i]
        source = f"{given.name}:{port}" if port else given.name
        base = f"program{MARK}batch_{number}_{count}"
        # The shape is in the host's memory, and asked for where the tensor is.
        shape = graph_def.node.add(name=f"{base}_shape", op="Shape", device=given.device)
        shape.input.append(source)
        shape.attr["T"].type, shape.attr["out_type"].type = dtype, tf.int32.as_datatype_enum
        for name, value in (("zero", 0), ("largest", batch_size), ("message", message)):
            tensor = tf.make_tensor_proto(value)
            node = graph_def.node.add(name=f"{base}_{name}", op="Const", device=host)
            node.attr["dtype"].type = tensor.dtype
            node.attr["value"].tensor.CopyFrom(tensor)
        rows = graph_def.node.add(name=f"{base}_rows", op="GatherV2", device=host)
        rows.input.extend([shape.name, f"{base}_zero", f"{base}_zero"])
        for name in ("Tparams", "Tindices", "Taxis"):
            rows.attr[name].type = tf.int32.as_datatype_enum
        fits = graph_def.node.add(name=f"{base}_fits", op="LessEqual", device=host)
        fits.input.extend([rows.name, f"{base}_largest"])
        fits.attr["T"].type = tf.int32.as_datatype_enum
        end = graph_def.node.add(name=f"{base}_refuse_{number}", op="Assert", device=host)
        end.input.extend([fits.name, f"{base}_message"])
        end.attr["T"].list.type.append(tf.string.as_datatype_enum)
        end.attr["summarize"].i = 1
        for node, names in readers:
            if source in names or (not port and f"{source}:0" in names):
                _wait(node, end.name)


def refusal(message: str) -> int | None:
    """The number with which the graph was refused that fails with this message."""
    found = re.search(f"program{MARK}(?:batch_[0-9_]+)?refuse_([0-9]+)", message)
    return int(found[1]) if found else None
