"""The order in which a device's operations run, and the control edges that hold them to it.

TensorFlow runs the operations that are ready, so the memory that they take at once depends on the
machine. An order cuts the operations into *steps*. One operation ends each: it waits for the others
of its step, and those of the next step wait for it. So during a step the device holds no more than
the tensors that were made until then and are used from then on, however the operations of a step
fall.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from lms_tensorflow.graph import Graph, Operation
from lms_tensorflow.sizes import Sizes

#: Operations that do not run, or only hand over a tensor.
_PASSIVE = frozenset({"_Arg", "_Retval", "Placeholder", "Const", "VarHandleOp"})

#: Operations that read no more than a shape, which is often known before.
_OF_SHAPES = frozenset({"Shape", "ShapeN", "Size", "Rank", "OnesLike", "ZerosLike"})

#: Tensors of this size and more are waited for when another device reads them. Smaller ones are
#: taken to stay to the end.
WAITED_FOR = 64 * 1024


@dataclass(slots=True)
class Order:
    """Steps of a device's operations.

    Attributes:
        graph: the operations, with steps for levels and the order's edges among their controls.
        ends: the operation that ends each step; the last step has none.
        starts: the operations of each step that wait for the end of the step before.
        edges: control edges beside the graph's own, as (waits, waited for).
        members: the operations that run in their step and not in another.
    """

    graph: Graph
    ends: list[int] = field(default_factory=list)
    starts: dict[int, list[int]] = field(default_factory=dict)
    edges: list[tuple[int, int]] = field(default_factory=list)
    members: set[int] = field(default_factory=set)


def make_order(
    graph: Graph,
    sizes: Sizes,
    device: str,
    sequence: list[int],
    size: int,
    serialized: frozenset[int] = frozenset(),
) -> Order:
    """Cut a sequence into steps.

    Args:
        device: whose operations are held to the order.
        sequence: all operations, each after those that it waits for.
        size: a step ends when its operations have made as many bytes.
        serialized: levels in which each operation is a step.
    """
    made = [0] * len(graph.operations)
    for tensor, one in sizes.of.items():
        if one.numeric and graph.root(tensor) == tensor:
            made[tensor[0]] += max(one.bytes, 1)
    held, computed = _held(graph, sizes, device), _computed(graph)
    operations = [
        Operation(one.name, one.op, one.device, one.inputs, list(one.controls), 0, one.guards)
        for one in graph.operations
    ]
    order = Order(graph.with_operations(operations))
    total, exits = 0, set[int]()
    for i in sequence:
        operation, step = operations[i], len(order.ends)
        group = graph.groups.get(i, ())
        sources = graph.sources(operation)
        earlier = [operations[one].level for one in sources if one not in group]
        if i not in held:
            operation.level = max(earlier, default=0)  # it runs as soon as it can
            if operation.device == device and (operation.guards or operation.op == "Exit"):
                operation.level = step
                if operation.op == "Exit" and not operation.guards:
                    exits.add(i)
                if step and _can_wait(operation) and max(earlier, default=0) < step:
                    order.edges.append((i, order.ends[-1]))
                    order.starts.setdefault(step, []).append(i)
            continue
        operation.level = step
        order.members.add(i)
        total += made[i]
        full = total >= size or graph.depth[i] in serialized
        ends = made[i] and i in computed and not group and full
        if ends and operation.device == device:
            order.ends.append(i)
            total = 0
    _connect(order, exits)
    for waits, source in order.edges:
        operations[waits].controls.append(source)
    order.graph.last_level = len(order.ends)
    return order


def _held(graph: Graph, sizes: Sizes, device: str) -> set[int]:
    """Operations that run once, in their step: the device's, and others that read much of its data.

    An Exit belongs to its loop and cannot wait for operations outside, but the step waits for it.
    """
    held = set()
    for i, operation in enumerate(graph.operations):
        if operation.guards or operation.op in _PASSIVE or operation.op == "Exit":
            continue
        reads = (t for t in operation.inputs if graph.operations[t[0]].device == device)
        if operation.device == device or any(
            t in sizes.of and sizes.of[t].numeric and sizes.of[t].bytes >= WAITED_FOR for t in reads
        ):
            held.add(i)
    return held


def _computed(graph: Graph) -> set[int]:
    """Operations that TensorFlow cannot make constants of, and so cannot take out of an order."""
    found: set[int] = set()
    for i in sorted(range(len(graph.operations)), key=lambda i: graph.depth[i]):
        operation = graph.operations[i]
        given = not operation.inputs and operation.op != "Const"
        stateful = operation.op.startswith("Random") or "Iterator" in operation.op
        reads = operation.op not in _OF_SHAPES and any(t[0] in found for t in operation.inputs)
        if given or stateful or reads:
            found.add(i)
    return found


def _can_wait(operation: Operation) -> bool:
    """Whether it may wait for something outside of all loops: of a loop, only its entry may."""
    if operation.op == "Exit":
        return False
    loops: int = sum(guard[0] == "loop" for guard in operation.guards)
    return loops == (1 if operation.op == "Enter" else 0)


def _connect(order: Order, exits: set[int]) -> None:
    """Set the starts of the steps, and the edges between these and the ends."""
    operations, members = order.graph.operations, order.members
    leads = set()  # to another member of its step
    for i in sorted(members):
        operation = operations[i]
        sources = order.graph.sources(operation)
        before = [
            one for one in sources if one in members and operations[one].level == operation.level
        ]
        leads.update(before)
        group = order.graph.groups.get(i, ())
        if all(one in group for one in before):  # merged operations wait for the same
            order.starts.setdefault(operation.level, []).append(i)
            if operation.level and (group or order.ends[operation.level - 1] not in sources):
                order.edges.append((i, order.ends[operation.level - 1]))
    for i in sorted((members - leads) | exits):
        level = operations[i].level
        if level < len(order.ends) and order.ends[level] != i:
            order.edges.append((order.ends[level], i))


def make_sequence(graph: Graph) -> list[int]:
    """All operations, each as late as it is needed: the ends by level, behind all that they need.

    So a tensor is there for a short time, and a gradient is used up before the next one is made.
    """
    levels = graph.depth
    waits = [set(graph.sources(one)) for one in graph.operations]
    for i, before in _readers_first(graph):
        waits[i].update(before)
    read = set().union(*waits)
    found: list[int] = []
    seen: set[int] = set()
    put: set[int] = set()
    for end in sorted(set(range(len(levels))) - read, key=lambda i: (levels[i], i)):
        stack = [(end, False)]
        while stack:
            i, done = stack.pop()
            if done:
                if i not in put:  # else it came with its group
                    found += graph.groups.get(i, [i])
                    put.update(graph.groups.get(i, ()))
            elif i not in seen:
                seen.add(i)
                stack.append((i, True))
                # the longest way first: it is on top of the stack
                stack += [(j, False) for j in sorted(waits[i], key=lambda j: (levels[j], -j))]
    return found


def _readers_first(graph: Graph) -> list[tuple[int, list[int]]]:
    """Updates of variables, and those readers of their old value that can run before.

    While somebody holds the old value, TensorFlow updates a copy of it. No edge comes of this.
    """
    found = []
    for i, operation in enumerate(graph.operations):
        if operation.op == "ReadVariableOp" or operation.guards:
            continue
        before = [
            reader
            for handle in operation.inputs
            if graph.operations[handle[0]].op in ("_Arg", "VarHandleOp")
            for reader in graph.value_readers(handle)
            if graph.operations[reader].level < operation.level
        ]
        if before:
            found.append((i, before))
    return found
