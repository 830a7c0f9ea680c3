"""The storage that a graph takes on the device: what makes it, and who uses it when."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from lms_tensorflow.graph import Graph, Tensor
from lms_tensorflow.sizes import Sizes

#: They hold their tensor for as long as the graph is there, or their caller does.
_HELD = {"Const": "a constant", "_Arg": "the caller's", "Placeholder": "the caller's"}

#: AddN takes the memory of one of its terms for the sum, the first that nobody else holds, and adds
#: that one first. A swap would change which, and with three terms the last bit of the sum.
_ORDERED = "a term of a sum"

#: A copy of what another device made, from when that sends it until its last use.
_SENT = "another device's"


@dataclass(frozen=True, slots=True)
class Use:
    """An operation on the device that reads a storage, as one of the tensors that share it."""

    level: int
    source: Tensor
    reader: int
    #: The level at which its source is made.
    made: int
    #: Why it cannot read a tensor that was swapped in instead; empty where it can.
    bound: str = ""


@dataclass(slots=True)
class Storage:
    """Memory on the device that one operation takes and others use."""

    root: Tensor
    bytes: int
    made: int
    known: bool
    #: Why it is never moved; empty where it can be.
    bound: str = ""
    uses: list[Use] = field(default_factory=list)
    #: Why some use cannot read from the host, though it comes late.
    stays: str = ""
    #: The last level that has the storage itself, whatever is swapped.
    held_until: int = 0

    @property
    def last(self) -> int:
        """The level after which it is free."""
        return max([self.held_until, *(use.level for use in self.uses)])


def storages(graph: Graph, sizes: Sizes, device: str) -> list[Storage]:
    """What the operations of a device take; variables are not among them.

    A storage is held until the level after its making, as an operation elsewhere that reads it
    gets a copy then.
    """
    loop_ends = _loop_ends(graph)
    found: dict[Tensor, Storage] = {}
    for tensor, size in sizes.of.items():
        here = graph.operations[tensor[0]].device == device
        if not size.numeric or not (here or _is_sent(graph, tensor, device)):
            continue
        root = graph.root(tensor) if here else tensor
        if root not in sizes.of or not sizes.of[root].numeric:
            continue  # a variable's
        if root not in found:
            found[root] = _storage(graph, sizes, root, "" if here else _SENT)
        storage = found[root]
        for reader in graph.readers.get(tensor, ()):
            use = _use(graph, tensor, reader, device, loop_ends)
            if use is None:
                continue
            if use.bound == _ORDERED:
                storage.bound = storage.bound or use.bound
            if use.bound:
                storage.held_until = max(storage.held_until, use.level)
                storage.stays = use.bound
            storage.uses.append(use)
    for storage in found.values():
        if storage.bound not in ("", _ORDERED, _SENT):
            storage.held_until = graph.last_level
        storage.uses.sort(key=lambda use: (use.level, use.reader))
    return list(found.values())


def _is_sent(graph: Graph, tensor: Tensor, device: str) -> bool:
    return any(graph.operations[i].device == device for i in graph.readers.get(tensor, ()))


def _storage(graph: Graph, sizes: Sizes, root: Tensor, bound: str) -> Storage:
    maker, size = graph.operations[root[0]], sizes.of[root]
    bound = bound or _HELD.get(maker.op, "")
    made = 0 if bound and bound != _SENT else maker.level
    if not bound and maker.guards:
        bound = _where(graph, root[0])
    storage = Storage(root, size.bytes, made, size.elements is not None, bound)
    storage.held_until = min(made + 1, graph.last_level)
    return storage


def _use(
    graph: Graph, tensor: Tensor, reader: int, device: str, loop_ends: dict[str, int]
) -> Use | None:
    operation = graph.operations[reader]
    made = graph.operations[tensor[0]].level
    if operation.op == "_Retval":
        return Use(graph.last_level, tensor, reader, made, "a result")
    if operation.device != device:
        return None
    level = max([operation.level, *(loop_ends[g[1]] for g in operation.guards if g[0] == "loop")])
    bound = ""
    if operation.guards or graph.operations[tensor[0]].guards:
        bound = _where(graph, reader)
    elif operation.op == "AddN" and len(operation.inputs) > 2:
        bound = _ORDERED
    return Use(level, tensor, reader, made, bound)


def _where(graph: Graph, operation: int) -> str:
    loop = any(guard[0] == "loop" for guard in graph.operations[operation].guards)
    return "in a loop" if loop else "in a branch"


def _loop_ends(graph: Graph) -> dict[str, int]:
    ends: dict[str, int] = defaultdict(int)
    for operation in graph.operations:
        for guard in operation.guards:
            if guard[0] == "loop":
                ends[guard[1]] = max(ends[guard[1]], operation.level)
    return ends
