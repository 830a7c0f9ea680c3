"""A TensorFlow graph as the planner sees it: operations in levels, and the storage they share."""

from __future__ import annotations

import copy
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from lms_tensorflow.errors import LmsError
from lms_tensorflow.merges import groups_of

#: One result of an operation: the operation's index and the number of the result.
Tensor = tuple[int, int]

#: The loops and branches around an operation: ("loop", name) or ("branch", predicate, side).
Guards = frozenset[tuple[Any, ...]]

#: Their result is the storage of their first input under another shape or name.
ALIASES = frozenset(
    {"Identity", "Reshape", "Squeeze", "ExpandDims", "StopGradient", "PreventGradient"}
    | {"Bitcast", "ReadVariableOp", "Enter", "Exit", "Switch"}
)


@dataclass(slots=True)
class Operation:
    """An operation, its inputs, and where it stands."""

    name: str
    op: str
    device: str
    inputs: list[Tensor] = field(default_factory=list)
    controls: list[int] = field(default_factory=list)
    level: int = 0
    #: An operation with guards runs not at all, or more than once.
    guards: Guards = frozenset()


class Graph:
    """The operations of a GraphDef and their order.

    Args:
        graph_def: a `GraphDef` with functions inlined and devices assigned, as Grappler has it.

    Raises:
        LmsError: an operation has an input that is not in the graph, or waits for itself.
    """

    def __init__(self, graph_def: Any) -> None:
        self.operations = [Operation(node.name, node.op, node.device) for node in graph_def.node]
        self.index = {one.name: i for i, one in enumerate(self.operations)}
        for operation, node in zip(self.operations, graph_def.node, strict=True):
            self._connect(operation, node)
        self._frames: dict[int, str] = {}
        self._arrange(graph_def)
        if self._frames:
            self._close_loops()
            self._arrange(graph_def)
        self.readers: dict[Tensor, list[int]] = defaultdict(list)
        for i, operation in enumerate(self.operations):
            for tensor in operation.inputs:
                self.readers[tensor].append(i)
        #: Operations that TensorFlow may merge later on: for each, all of its group.
        self.groups = groups_of(self.operations, self.readers)
        if self.groups:
            self._gather()
            self._arrange(graph_def)
        #: Levels that stay as they are when an order makes others of its own.
        self.depth = [one.level for one in self.operations]
        self.last_level = max((one.level for one in self.operations), default=0)

    def with_operations(self, operations: list[Operation]) -> Graph:
        """The same graph in another order."""
        other = copy.copy(self)
        other.operations = operations
        return other

    def root(self, tensor: Tensor) -> Tensor:
        """The tensor that made the storage of this one."""
        while True:
            operation = self.operations[tensor[0]]
            if operation.op not in ALIASES or not operation.inputs:
                return tensor
            first = operation.inputs[0]
            if self.operations[first[0]].device != operation.device:  # that is a copy
                return tensor
            tensor = first

    def value_readers(self, handle: Tensor) -> list[int]:
        """The operations that read a variable's value, outside of loops and branches."""
        found: list[int] = []
        heads = [i for i in self.readers.get(handle, ()) if self._reads(i)]
        while heads:
            for reader in self.readers.get((heads.pop(), 0), ()):
                if not self.operations[reader].guards:
                    found.append(reader)
                    if self.root((reader, 0)) != (reader, 0):
                        heads.append(reader)
        return found

    def _reads(self, i: int) -> bool:
        return self.operations[i].op == "ReadVariableOp" and not self.operations[i].guards

    def _connect(self, operation: Operation, node: Any) -> None:
        for text in node.input:
            name, _, port = text.removeprefix("^").partition(":")
            source = self.index.get(name)
            if source is None:
                raise LmsError(f"LMS: {node.name} reads {text}, which is not in the graph")
            if text.startswith("^"):
                operation.controls.append(source)
            else:
                operation.inputs.append((source, int(port or 0)))

    def _arrange(self, graph_def: Any) -> None:
        """Set levels and guards, in topological order; a loop's way back is left out."""
        after: list[list[int]] = [[] for _ in self.operations]
        missing = [0] * len(self.operations)
        for i, operation in enumerate(self.operations):
            for source in self.sources(operation):
                after[source].append(i)
                missing[i] += 1
        ready = [i for i, count in enumerate(missing) if count == 0]
        outer: dict[str, Guards] = {}
        done = 0
        while ready:
            done += len(ready)
            following: list[int] = []
            for i in ready:
                self._set_level_and_guards(self.operations[i], graph_def.node[i], outer)
                for reader in after[i]:
                    missing[reader] -= 1
                    if missing[reader] == 0:
                        following.append(reader)
            ready = following
        if done < len(self.operations):
            stuck = next(self.operations[i].name for i, count in enumerate(missing) if count)
            raise LmsError(f"LMS: {stuck} waits for itself, outside of a loop")

    def sources(self, operation: Operation) -> list[int]:
        """The operations that this one waits for; a loop's way back is left out."""
        sources = [source for source, _ in operation.inputs] + operation.controls
        return [one for one in sources if self._is_forward(operation, one)]

    def _is_forward(self, operation: Operation, source: int) -> bool:
        return operation.op != "Merge" or self.operations[source].op != "NextIteration"

    def _set_level_and_guards(
        self, operation: Operation, node: Any, outer: dict[str, Guards]
    ) -> None:
        sources = [self.operations[i] for i in self.sources(operation)]
        operation.level = 1 + max((one.level for one in sources), default=-1)
        inputs = [one for one in operation.inputs if self._is_forward(operation, one[0])]
        guards = [self._guards(one) for one in inputs]
        guards += [self.operations[i].guards for i in operation.controls]
        around = Guards().union(*guards)
        if operation.op == "Merge":  # it runs whichever of its inputs has a value
            around = frozenset.intersection(*guards)
        elif operation.op == "Enter":
            frame = node.attr["frame_name"].s.decode()
            outer[frame] = outer.get(frame, Guards()) | around
            self._frames[self.index[operation.name]] = frame
            around |= {("loop", frame)}
        elif operation.op == "Exit":
            frames = [guard[1] for guard in around if guard[0] == "loop"]
            frame = max(frames, key=lambda frame: len(outer[frame]))
            self._frames[self.index[operation.name]] = frame
            around = outer[frame]
        operation.guards = around

    def _close_loops(self) -> None:
        """Let a loop's exits wait for all of its entries.

        TensorFlow begins only so many rounds before everything has entered. So nothing that comes
        after an exit may hold back an entry.
        """
        for i, frame in self._frames.items():
            if self.operations[i].op == "Exit":
                self.operations[i].controls += [
                    j
                    for j, other in self._frames.items()
                    if other == frame and self.operations[j].op == "Enter"
                ]

    def _gather(self) -> None:
        """Let operations that may be merged wait for all that one of them waits for."""
        for i, group in self.groups.items():
            operation = self.operations[i]
            there = {*self.sources(operation), *group}
            for j in group:
                other = self.operations[j]
                missing = [one for one in self.sources(other) if one not in there]
                operation.controls += missing
                there.update(missing)

    def _guards(self, tensor: Tensor) -> Guards:
        """The guards of a tensor's readers: a Switch has a value for one of its two branches."""
        operation = self.operations[tensor[0]]
        if operation.op != "Switch":
            return operation.guards
        return operation.guards | {("branch", operation.inputs[1], tensor[1])}
