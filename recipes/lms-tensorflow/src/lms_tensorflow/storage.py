"""The storage that a graph takes on the device, with its maker, its uses and their levels."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from lms_tensorflow.graph import Graph, Tensor
from lms_tensorflow.order import Order
from lms_tensorflow.sizes import Sizes

#: Operations that hold their tensor for as long as the graph is there, or their caller does.
_HELD = {"Const": "a constant", "_Arg": "the caller's", "Placeholder": "the caller's"}

#: AddN takes the memory of one of its terms for the sum, the first that nobody else holds, and adds
#: that one first. A swap would change which, and with three terms the last bit of the sum.
_ORDERED = "a term of a sum"

#: A copy of another device's tensor, from its sending until its last use.
_SENT = "another device's"

#: Small tensors are not waited for, so nobody knows when another device has read them.
_READ = "read by another device"

#: While somebody holds a variable's old value, TensorFlow updates a copy of it.
_OLD = "a variable's old value"

#: A kernel has it beside its results, while it runs.
_WORK = "work space"

#: Their results may be views into their input, which is then there for as long as these are.
_VIEWS = frozenset({"Slice", "Split", "SplitV", "StridedSlice", "Unpack"})


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


def storages(graph: Graph, sizes: Sizes, device: str, order: Order | None = None) -> list[Storage]:
    """The storage that a device's operations take; variables are not among them.

    Without an order a storage is held until the level after its making, as an operation elsewhere
    that reads it gets a copy then.
    """
    done = _done(graph)
    found: dict[Tensor, Storage] = {}
    for tensor, size in sizes.of.items():
        here = graph.operations[tensor[0]].device == device
        if not size.numeric or not (here or _is_sent(graph, tensor, device)):
            continue
        root = graph.root(tensor) if here else tensor
        if root not in sizes.of or not sizes.of[root].numeric:
            continue  # a variable's
        if root not in found:
            found[root] = _storage(graph, sizes, root, "" if here else _SENT, order is not None)
        storage = found[root]
        for reader in graph.readers.get(tensor, ()):
            use = _use(graph, tensor, reader, device, done)
            if graph.operations[reader].device != device and use is None and here and order:
                use = _read_elsewhere(graph, tensor, reader, order)
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
    _hold_viewed(graph, found)
    work = _work(graph, sizes, device, done)
    return [*found.values(), *_old_values(graph, sizes, device), *work]


def _work(graph: Graph, sizes: Sizes, device: str, done: list[int]) -> list[Storage]:
    """The memory that kernels take, and that oneDNN keeps for the gradient of a maximum."""
    found = []
    for i, operation in enumerate(graph.operations):
        if operation.device != device:
            continue
        size, last = sizes.work.get(i, 0), done[i]
        if operation.op == "MaxPool" and "/device:CPU:" in device and (i, 0) in sizes.of:
            readers = graph.readers.get((i, 0), [])
            if back := [done[j] for j in readers if graph.operations[j].op == "MaxPoolGrad"]:
                size, last = sizes.of[i, 0].elements or 0, max(back)  # a byte for each
        if size:
            found.append(Storage((i, 0), size, operation.level, True, _WORK, held_until=last))
    return found


def _hold_viewed(graph: Graph, found: dict[Tensor, Storage]) -> None:
    """Hold the storage below views for as long as these."""
    for root in sorted(found, key=lambda one: -found[one].made):  # views of views first
        maker = graph.operations[root[0]]
        if maker.op in _VIEWS:
            viewed = [found[top] for one in maker.inputs if (top := graph.root(one)) in found]
            largest = max(viewed, key=lambda one: one.bytes, default=None)
            if largest is not None and largest.bytes >= found[root].bytes:
                largest.held_until = max(largest.held_until, found[root].last)
                largest.stays = largest.stays or "seen through a view"


def _old_values(graph: Graph, sizes: Sizes, device: str) -> list[Storage]:
    """The old values of a device's variables that are read after the update."""
    found = []
    for name, size in sizes.handles.items():
        handle = (graph.index[name], 0)
        if graph.operations[handle[0]].device != device:
            continue
        last = max((graph.operations[i].level for i in graph.value_readers(handle)), default=0)
        for i in graph.readers.get(handle, ()):
            update = graph.operations[i]
            if update.op != "ReadVariableOp" and update.level < last:
                storage = Storage(handle, size, update.level, True, _OLD)
                storage.held_until = last
                found.append(storage)
    return found


def _is_sent(graph: Graph, tensor: Tensor, device: str) -> bool:
    return any(graph.operations[i].device == device for i in graph.readers.get(tensor, ()))


def _storage(graph: Graph, sizes: Sizes, root: Tensor, bound: str, ordered: bool) -> Storage:
    maker, size = graph.operations[root[0]], sizes.of[root]
    bound = bound or _HELD.get(maker.op, "")
    made = 0 if bound and bound != _SENT else maker.level
    if not bound and maker.guards:
        bound = _where(graph, root[0])
    storage = Storage(root, size.bytes, made, size.elements is not None, bound)
    storage.held_until = made if ordered else min(made + 1, graph.last_level)
    return storage


def _use(graph: Graph, tensor: Tensor, reader: int, device: str, done: list[int]) -> Use | None:
    operation = graph.operations[reader]
    made = graph.operations[tensor[0]].level
    if operation.op == "_Retval":
        return Use(graph.last_level, tensor, reader, made, "a result")
    if operation.device != device:
        return None
    bound = ""
    if operation.guards or graph.operations[tensor[0]].guards:
        bound = _where(graph, reader)
    elif operation.op == "AddN" and len(operation.inputs) > 2:
        bound = _ORDERED
    return Use(done[reader], tensor, reader, made, bound)


def _read_elsewhere(graph: Graph, tensor: Tensor, reader: int, order: Order) -> Use:
    waited_for = reader in order.members
    level = graph.operations[reader].level if waited_for else graph.last_level
    return Use(level, tensor, reader, graph.operations[tensor[0]].level, _READ)


def _where(graph: Graph, operation: int) -> str:
    loop = any(guard[0] == "loop" for guard in graph.operations[operation].guards)
    return "in a loop" if loop else "in a branch"


def _done(graph: Graph) -> list[int]:
    """The level of each operation; in a loop or a branch, that of the operations behind it."""
    operations = graph.operations
    done = [graph.last_level if one.guards else one.level for one in operations]
    for i in sorted(range(len(operations)), key=lambda i: -graph.depth[i]):
        for source in graph.sources(operations[i]):
            if operations[source].guards:
                done[source] = min(done[source], max(done[i], operations[source].level))
    ends: dict[str, int] = defaultdict(int)
    for i, operation in enumerate(operations):
        for guard in operation.guards:
            if guard[0] == "loop":
                ends[guard[1]] = max(ends[guard[1]], done[i])
    for i, operation in enumerate(operations):
        done[i] = max([done[i], *(ends[g[1]] for g in operation.guards if g[0] == "loop")])
    return done
