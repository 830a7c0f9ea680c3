"""The log of the operations of one iteration: it tells how each storage came to be."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from lms.operations.recipe import Given, Kept, Operation, Recipe, Value, View, random_state
from lms.operations.storages import (
    LoggedStorage,
    address_of,
    changed_by,
    is_known_kind,
    version_of,
)
from lms.operations.table import (
    COMMUNICATION,
    STATISTICS,
    changes_statistics,
    is_repeatable,
    is_seeded,
)
from lms.paging.device import Device
from lms.paging.paged_parameter import paged_parameter_in
from lms.paging.saved_storage import SavedStorage
from lms.paging.tensors import are_numbers_absent, empty_shell, is_fake
from lms.planning.trace import Recomputation, Trace

#: Tells whether a saved storage, by its number, may be the beginning of a recipe.
Usable = Callable[[int], bool]


class OperationLog(TorchDispatchMode):
    """Sees all operations of the program, and keeps those of the iteration that runs.

    Args:
        smallest: tensors from before the iteration of at least so many bytes are not kept, but for
            parameters.
        find: the saved storage at an address, if there is one.
        restore: brings storages back that a change is about to make impossible to compute again.

    Attributes:
        watching: whether to note operations; `measuring` their times, too.
    """

    def __init__(
        self,
        device: Device,
        smallest: int,
        find: Callable[[int], SavedStorage | None],
        restore: Callable[[list[SavedStorage]], None],
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.watching = self.measuring = True
        self._dropped: weakref.WeakSet[SavedStorage] = weakref.WeakSet()
        self._device, self._smallest = device, smallest
        self._find, self._restore = find, restore
        self._operations = self._last_event = 0
        self._quiet = threading.local()
        self._storages: dict[int, LoggedStorage] = {}  # by address
        self._received: dict[int, StorageWeakRef] = {}  # by address
        self._by_number: list[LoggedStorage] = []
        self._blocks: weakref.WeakKeyDictionary[SavedStorage, LoggedStorage] = (
            weakref.WeakKeyDictionary()
        )
        self._dependent: dict[int, weakref.WeakSet[SavedStorage]] = {}  # by address

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Compiled graphs stay compiled: the log knows nothing of their results."""
        return True

    def begin(self) -> None:
        """Another iteration begins."""
        self._storages, self._by_number, self._operations = {}, [], 0
        self._blocks.clear()
        for address, blocks in list(self._dependent.items()):
            if not blocks:
                del self._dependent[address]
        for address, reference in list(self._received.items()):
            if reference.expired():
                del self._received[address]

    def restore_all(self) -> None:
        """Computes all that was dropped: changes are not seen any more."""
        self._restore(list(self._dropped))

    def event(self) -> None:
        """Backward has saved or used a tensor: it needs values as they are now."""
        self._last_event = self._operations

    @contextmanager
    def aside(self) -> Iterator[None]:
        """The code inside is LMS's own."""
        self._quiet.depth = self._depth + 1
        try:
            yield
        finally:
            self._quiet.depth -= 1

    @property
    def _depth(self) -> int:
        """The depth of this thread's `aside` blocks."""
        return int(getattr(self._quiet, "depth", 0))

    def saved(self, tensor: torch.Tensor, block: SavedStorage) -> None:
        """A tensor of a storage is saved for backward."""
        found = self._storages.get(address_of(tensor))
        if found is None:
            found = self._add(tensor, None)
        found.used(version_of(tensor), self._operations)
        if found.block is None or found.block[0] != block.number:
            found.block, found.counter = (block.number, weakref.ref(block)), empty_shell(tensor)
            self._blocks[block] = found

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Runs an operation and notes it."""
        named = dict(kwargs or {})
        if not self._depth and func.namespace in COMMUNICATION:
            self._note_received(args, named)
        if self._depth or not (self.watching or self._dropped):
            return func(*args, **named)
        given = [leaf for leaf in tree_leaves((args, named)) if isinstance(leaf, torch.Tensor)]
        changed = changed_by(func, args, named)
        self._before_change(changed)
        if torch._C._current_graph_task_id() != -1:  # in backward nothing is kept but changes
            result = func(*args, **named)
            self._note(None, given, changed, [])
            return result
        if func.is_view:
            for tensor in given:
                self._keep(tensor)
            return func(*args, **named)
        operation = None
        if all(map(is_known_kind, given)) and is_repeatable(func, args, named):
            operation = self._operation(func, args, named, changed)
        before = self._device.stamp() if operation and self.measuring else None
        result = func(*args, **named)
        if operation and before is not None:
            operation.moments = before, self._device.stamp()
        made = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        self._note(operation, given, changed, made)
        return result

    def _operation(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], changed: list[torch.Tensor]
    ) -> Operation:
        """An operation that is about to run."""
        used: Any = args
        if trains := changes_statistics(func, args):
            used = [arg for number, arg in enumerate(args) if number not in STATISTICS]
        tensors = [leaf for leaf in tree_leaves((used, kwargs)) if isinstance(leaf, torch.Tensor)]
        reads = [self._keep(tensor).value for tensor in tensors]
        own, named = tree_map_only(torch.Tensor, self._view, (args, kwargs))
        into = {self._keep(tensor).number for tensor in changed} if not trains else set[int]()
        operation = Operation(self._operations, func, own, named, reads, sorted(into))
        if is_seeded(func) and not any(map(is_fake, tensors)):
            with self._device.aside(), self.aside():
                operation.state = random_state(tensors[0].device)
        return operation

    def _note(
        self,
        operation: Operation | None,
        given: list[torch.Tensor],
        changed: list[torch.Tensor],
        made: list[torch.Tensor],
    ) -> None:
        """An operation has run."""
        self._operations += 1
        inputs = {address_of(tensor) for tensor in given if is_known_kind(tensor)}
        versions = {
            address_of(tensor): version_of(tensor) for tensor in changed if is_known_kind(tensor)
        }
        for address in versions:
            if address in self._storages:
                storage = self._storages[address]
                maker = operation if operation and operation.changed else None
                storage.change(maker, self._operations)
                if (version := versions[address]) is not None:
                    storage.version = version + 1  # autograd counts the change after this
        numbers = list[int]()
        for tensor in made:
            if not is_known_kind(tensor):
                numbers.append(-1)
                continue
            found = self._storages.get(address_of(tensor))
            if found is None and address_of(tensor) in inputs:
                found = self._keep(tensor)
            numbers.append((found or self._add(tensor, operation)).number)
        if operation is not None:
            operation.results = tuple(numbers)

    def _note_received(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Other ranks write into some storages; FSDP gives their memory up in between, unseen."""
        for leaf in tree_leaves((args, kwargs)):
            if isinstance(leaf, torch.Tensor) and is_known_kind(leaf):
                reference = StorageWeakRef(leaf.untyped_storage())
                self._received[reference.cdata] = reference

    def _is_received(self, address: int) -> bool:
        reference = self._received.get(address)
        return reference is not None and not reference.expired()

    def _add(self, tensor: torch.Tensor, maker: Operation | None) -> LoggedStorage:
        storage = tensor.untyped_storage()
        found = LoggedStorage(len(self._by_number), storage, maker, version_of(tensor))
        self._by_number.append(found)
        self._storages[storage._cdata] = found
        return found

    def _keep(self, tensor: torch.Tensor) -> LoggedStorage:
        """What is known of a tensor's storage; one from before the iteration may be kept."""
        if not is_known_kind(tensor):
            return LoggedStorage(-1, torch.UntypedStorage(), None)
        found = self._storages.get(address_of(tensor))
        if found is None:
            found = self._add(tensor, None)
            lasting = isinstance(tensor, torch.nn.Parameter) or found.nbytes < self._smallest
            # A tensor of inference mode has no version.
            lasting = lasting and tensor.grad_fn is None and not tensor.is_inference()
            # What has numbers where none are, `torch.tensor(0.0)` in an optimizer, is not kept.
            lasting = lasting and is_fake(tensor) == are_numbers_absent()
            if lasting and paged_parameter_in(tensor) is None:
                with self._device.aside(), self.aside():
                    found.given = Given(tensor, tensor._version, tensor.detach())
        found.used(version_of(tensor), self._operations)
        return found

    def _view(self, tensor: torch.Tensor) -> View:
        shape, stride = tuple(tensor.shape), tensor.stride()
        return View(self._keep(tensor).number, tensor.dtype, shape, stride, tensor.storage_offset())

    # -- recipes

    def recipe(self, block: SavedStorage, usable: Usable) -> Recipe | None:
        """How to make a saved storage again from what is in memory; None if that is impossible.

        Args:
            usable: tells whether another saved storage will be there.
        """
        found = self._blocks.get(block)
        if found is None or found.nbytes != block.nbytes:
            return None
        closure = self._closure(found, usable, None)
        if closure is None:
            return None
        operations, starts = closure
        blocks, given = dict[int, Kept](), dict[int, Given]()
        for number in starts:
            start = self._by_number[number]
            if not start.current:
                return None
            other = start.block[1]() if start.block else None
            if other is not None:
                assert start.counter is not None
                blocks[number] = Kept(start.counter, start.version, other)
                other.dependent.add(block)
            elif start.given is not None:
                given[number] = start.given._replace(version=start.version)
                address = start.reference.cdata
                self._dependent.setdefault(address, weakref.WeakSet()).add(block)
        self._dropped.add(block)
        return Recipe(self._device, found.number, operations, blocks, given)

    def recomputations(self, trace: Trace) -> dict[int, Recomputation]:
        """By block what it takes to make it again, for a trace of this iteration."""
        found: dict[int, Recomputation] = {}
        for storage in self._by_number:
            if storage.block is None or storage.block[0] >= len(trace.blocks):
                continue
            number = storage.block[0]
            closure = self._closure(storage, usable_for(trace, number), self._last_event)
            if closure is None:
                continue
            operations, starts = closure
            moments = [op.moments for op in operations if op.moments is not None]
            if len(moments) < len(operations):
                continue
            parents = (self._by_number[start].block for start in starts)
            found[number] = Recomputation(
                sum(self._device.seconds(*pair) for pair in moments),
                tuple(parent[0] for parent in parents if parent is not None),
                self._bytes_beside(operations, storage.number),
                operations[-1].index,
            )
        return found

    def _closure(
        self, target: LoggedStorage, usable: Usable, moment: int | None
    ) -> tuple[list[Operation], set[int]] | None:
        """The operations that make a storage's last value, and the storages that they start from.

        An operation that changes a storage must not do it to one that is in use: such storages are
        made again as well.

        Args:
            moment: at which the values count; now, with what is in memory, when it is None.
        """

        def value_of(storage: LoggedStorage) -> Value:
            return storage.value if moment is None else storage.value_at(moment)

        again = {target.number}
        while True:
            operations, starts, count = dict[int, Operation](), set[int](), len(again)
            pending, seen = [value_of(target)], set[Value]()
            while pending:
                value = pending.pop()
                if value in seen:
                    continue
                seen.add(value)
                storage = self._by_number[value.storage]
                if value.storage not in again:
                    alive = moment is None
                    if value == value_of(storage) and self._is_start(storage, usable, alive):
                        starts.add(value.storage)
                        continue
                    again.add(value.storage)
                operation = storage.makers[value.changes]
                if operation is None or -1 in operation.results:
                    return None
                operations[operation.index] = operation
                again.update(operation.changed)
                pending += operation.reads
            if len(again) == count and not again & starts:
                return [operations[index] for index in sorted(operations)], starts

    def _is_start(self, storage: LoggedStorage, usable: Usable, alive: bool) -> bool:
        """Whether a storage is there for others to be made from."""
        if self._is_received(storage.reference.cdata):
            return False
        if storage.block is not None:
            number, block = storage.block
            return usable(number) and not (alive and block() is None)
        return storage.given is not None

    def _bytes_beside(self, operations: Sequence[Operation], target: int) -> int:
        """Bytes at the highest, beside the target, while some operations are repeated."""
        last = {number: op.index for op in operations for number in op.results}
        last |= {v.storage: op.index for op in operations for v in op.reads if v.storage in last}
        last.pop(target, None)
        held, most, there = 0, 0, set[int]()
        for operation in operations:
            for number in set(operation.results) & last.keys() - there:
                there.add(number)
                held += self._by_number[number].nbytes
            most = max(most, held)
            for number in [n for n in there if last[n] == operation.index]:
                held -= self._by_number[number].nbytes
                del last[number]
                there.discard(number)
        return most

    def _before_change(self, changed: list[torch.Tensor]) -> None:
        """Some tensors are about to change: whatever would be made from them is made now."""
        for tensor in changed:
            if is_known_kind(tensor):
                address = address_of(tensor)
                blocks, saved = self._dependent.get(address), self._find(address)
                found = [*(blocks or ()), *(saved.dependent if saved is not None else ())]
                if found:
                    self._restore(found)


def usable_for(trace: Trace, number: int) -> Usable:
    """Tells the blocks of an iteration that are there when another is used first."""
    block = trace.blocks[number]

    def usable(other: int) -> bool:
        if other >= len(trace.blocks):
            return False
        start = trace.blocks[other]
        return (
            not start.unused and start.packed <= block.last_held + 1 and start.freed >= block.used
        )

    return usable
