"""One iteration under LMS: from its first event to its last. `plan_follower` moves its blocks."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from lms.hooks.recomputed_layers import WatchedLayer
from lms.iteration_state import Blocks, Guide, LayerUses, OptimizerSteps, Progress, Runtime
from lms.paging.paged_parameter import IdlePeriod, PagedParameter
from lms.paging.saved_storage import SavedStorage
from lms.paging.tensors import empty_shell
from lms.plan_follower import PlanFollower
from lms.planning.trace import LayerCall, PackKey, Shape, Trace


class Iteration:
    """One iteration of the program.

    Attributes:
        follower: keeps it to the plan, or to the recorder, that `guide` names.
        outside: parameters in memory for a use that no plan sees.
    """

    def __init__(
        self, number: int, runtime: Runtime, choice: int = 0, earlier: bool = False
    ) -> None:
        self.number, self.runtime, self.device = number, runtime, runtime.device
        self.progress = Progress(blocks=len(runtime.parameters), earlier=earlier)
        self.guide = Guide()
        self.steps = OptimizerSteps(earlier)
        self.layers = LayerUses(choice)
        self.blocks = Blocks()
        self.follower = PlanFollower(runtime, self.progress, self.guide, self.blocks)
        self.outside: list[PagedParameter] = []

    # -- from the first event to the last

    def begin(self, before: Iteration) -> None:
        """The first event is about to come.

        Args:
            before: the iteration that has ended.
        """
        self.runtime.host_full = None
        self.runtime.releases.remove(before.blocks.idle.values())
        # Storages that are left over are not in the way of those to come.
        self.runtime.releases.recall(before.blocks.storages.values())
        self.follower.send_unreferenced(0)
        before.layers.given.clear()
        if self.runtime.operations is not None:
            self.runtime.operations.begin()
        parameters = self.runtime.parameters
        for number, parameter in enumerate(parameters):
            parameter.idle = self.blocks.idle[number] = IdlePeriod(parameter, number)
        resident = sum(parameter.allocated for parameter in parameters if parameter.resident)
        self.progress.started = self.device.stamp()
        self.progress.base = self.device.memory() - resident

    @property
    def begun(self) -> bool:
        """Whether there were events, and they count."""
        return bool(self.progress.keys)

    @property
    def at_rest(self) -> bool:
        """Whether no backward is to come that needs its storages."""
        return all(storage.used for storage in self.blocks.storages.values())

    @property
    def over(self) -> bool:
        """Whether it has ended: nothing is saved, or only storages that backward has used.

        A step of an optimizer does not end it. If two models learn from one graph, the first steps
        before the second's backward. But once an optimizer has made its next step, storages that no
        backward has used are not waited for: a loss that is only looked at has a graph while it is
        kept.
        """
        if not self.blocks.storages:
            return self.progress.packed or self.steps.stepped
        return self.steps.repeated or (self.steps.stepped and self.at_rest)

    def finish(self) -> tuple[Trace | None, Trace | None]:
        """Ends the iteration; returns the recorded trace, and that of the followed plan."""
        recorder, followed = self.guide.recorder, self.guide.trace
        self.abandon()
        if recorder is None:
            return None, followed
        trace = recorder.finish()
        trace.earlier = self.steps.earlier
        trace.stepped = self.steps.stepped and self.steps.earlier
        trace.calls = tuple(self.layers.calls)
        if self.runtime.operations is not None and followed is None:
            trace.recomputations = self.runtime.operations.recomputations(trace)
        return trace, followed

    def abandon(self) -> None:
        """Its events do not count."""
        self.guide.drop()
        self.progress.stop()

    # -- events

    def pack(self, tensor: torch.Tensor) -> SavedStorage:
        """A tensor is saved."""
        progress, storage = self.progress, tensor.untyped_storage()
        progress.packed = True
        block = self.runtime.by_address.get(storage._cdata)
        if block is not None and (block.owner is not self or not block.is_in(storage)):
            block = None
        number = progress.blocks if block is None else block.number
        key = PackKey(number, storage.nbytes(), tuple(tensor.shape), str(tensor.dtype))
        self._event_begins(key, number)
        if block is None:
            progress.blocks += 1
            block = SavedStorage(self, number, tensor)
            self.runtime.by_address[storage._cdata] = self.blocks.storages[number] = block
            self.runtime.releases.put(block)
        if self.runtime.operations is not None:
            self.runtime.operations.saved(tensor, block)
        if self.guide.recorder is not None:
            self.guide.recorder.pack(key, tensor)
        self._event_ends()
        return block

    def unpack(self, block: SavedStorage) -> None:
        """A tensor of a storage is used."""
        block.used = True
        self._use_begins(block.number)
        if block.flat is None:
            self.follower.count_missed(block.number)
        block.ready()
        self._event_ends()

    def use(self, parameter: PagedParameter) -> None:
        """A parameter is used: its idle period ends, and another begins."""
        idle, progress = parameter.idle, self.progress
        self._use_begins(idle.number)
        if not parameter.resident:
            self.follower.count_missed(idle.number)
        parameter.ready()
        idle.used = True
        self._event_ends()
        number = progress.blocks
        key = PackKey(number, parameter.nbytes, parameter.shape, parameter.dtype)
        progress.blocks += 1
        self._event_begins(key, number)
        parameter.idle = self.blocks.idle[number] = IdlePeriod(parameter, number)
        if self.guide.recorder is not None:
            self.guide.recorder.idle_begins(key, parameter.index)
        if self.guide.plan is None:
            self.runtime.releases.put(parameter.idle)
        self._event_ends()

    def use_outside(self, parameter: PagedParameter) -> None:
        """A parameter is used where nothing is recorded: in evaluation, or such.

        Those before it leave, one by one, in the order of the uses.
        """
        before, self.outside = self.outside, [parameter]
        for other in before:
            other.idle.release()
            self.outside += [other] * other.resident
        parameter.page_in()

    def _use_begins(self, number: int) -> None:
        """An event begins that uses a block."""
        self._event_begins(None, number)
        if self.guide.recorder is not None:
            self.guide.recorder.unpack(number)

    def _event_begins(self, key: PackKey | None, number: int) -> None:
        """An event begins: the plan that fits gives up the blocks that it says."""
        self.follower.event_begins(self.progress.add(key, number))

    def _event_ends(self) -> None:
        self.follower.event_ends(len(self.progress.keys) - 1)

    def reclaim(self) -> int:
        """Gives up, at once, all memory that nothing but backward needs; returns its bytes."""
        freed = 0
        for block in self.blocks.all():
            block.recall()
            if block.absent or block.referenced:
                continue
            if not self.follower.send(block):
                break
            block.release()
            freed += block.nbytes * block.freed
        return freed

    # -- layers that may be computed again

    def layer_begins(self, layer: WatchedLayer, tensors: Iterable[torch.Tensor]) -> int:
        """The forward of a layer is about to run on `tensors`; returns the number of events."""
        given = [(layer, empty_shell(tensor), tensor._version) for tensor in tensors]
        self.layers.given += given
        return len(self.progress.keys)

    def layer_ends(
        self, number: int, first: int, tensors: Iterable[torch.Tensor], shape: Shape
    ) -> None:
        """The forward of a layer has run.

        Args:
            first: the number of the first event in it.
            tensors: its arguments and results.
            shape: of the first tensor.
        """
        kept = set()
        for tensor in tensors:
            if tensor.layout is torch.strided:
                block = self.runtime.by_address.get(tensor.untyped_storage()._cdata)
                if block is not None and block.owner is self:
                    kept.add(block.number)
        end = len(self.progress.keys)
        if first < end:
            self.layers.calls.append(LayerCall(number, first, end, frozenset(kept), shape))

    # -- of its storages

    def storage_returned(self, storage: SavedStorage) -> None:
        """A storage is on the device again, at another address."""
        assert storage.flat is not None
        self.runtime.by_address[storage.flat.untyped_storage()._cdata] = storage
        if self.guide.recorder is not None:
            self.guide.recorder.storage_returned(storage.number, storage.flat)

    def storage_freed(self, storage: SavedStorage) -> None:
        """Nothing needs the storage any more."""
        if self.guide.recorder is not None:
            self.guide.recorder.storage_freed(storage.number)
