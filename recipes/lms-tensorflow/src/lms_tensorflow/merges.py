"""Neighbours in a graph that oneDNN computes as one operation.

TensorFlow merges them on CPUs when it has cut the graph for its devices, after LMS has seen it. It
merges two only where both wait for the same operations, and the result of the merged operation may
differ from theirs in the last bit. So LMS must add the same to both. An operation that waits for
one of them must not hold back the other, or the merged operation would wait for itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Protocol

#: An operation, and those that take its result in when nobody else reads it.
_CHAINS = {"BiasAdd": ("Conv2D",), "Conv2D": ("Pad",), "_FusedConv2D": ("Pad",)}

#: Gradients of a convolution's kernel and bias, and which of their inputs both must read.
_SIBLINGS = {"Conv2DBackpropFilter": 2, "BiasAddGrad": 0}


class _Operation(Protocol):
    op: str
    device: str
    inputs: list[tuple[int, int]]
    controls: list[int]
    level: int


def groups_of(
    operations: Sequence[_Operation], readers: Mapping[tuple[int, int], Sequence[int]]
) -> dict[int, list[int]]:
    """The group of each operation that may be merged with others: these and itself, in their order.

    Args:
        operations: of one graph, with their levels.
        readers: by tensor, the indices of the operations that read it.
    """
    parts: list[set[int]] = []
    siblings: dict[tuple[int, int], set[int]] = defaultdict(set)
    for i, operation in enumerate(operations):
        if "/device:CPU:" not in operation.device:
            continue
        if operation.op in _CHAINS and operation.inputs:
            before = operation.inputs[0]
            first = operations[before[0]]
            alone = list(readers.get(before, ())) == [i] and first.device == operation.device
            if first.op in _CHAINS[operation.op] and alone and _ready(operations, i, before[0]):
                parts.append({before[0], i})
        elif operation.op in _SIBLINGS and len(operation.inputs) > _SIBLINGS[operation.op]:
            siblings[operation.inputs[_SIBLINGS[operation.op]]].add(i)
    for together in siblings.values():
        if {operations[i].op for i in together} == set(_SIBLINGS):
            parts.append(together)
    found: dict[int, list[int]] = {}
    for part in parts:
        whole = part.union(*(found[i] for i in part if i in found))
        ordered = sorted(whole, key=lambda i: (operations[i].level, i))
        found.update(dict.fromkeys(whole, ordered))
    return found


def _ready(operations: Sequence[_Operation], i: int, before: int) -> bool:
    """Whether all else that an operation waits for cannot hang on the one before it."""
    one = operations[i]
    others = [source for source, _ in one.inputs] + one.controls
    return all(operations[j].level <= operations[before].level for j in others if j != before)
