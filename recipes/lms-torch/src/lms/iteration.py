"""One iteration under LMS: its events, and the plan that it follows or the recorder that learns it.

The first iteration of each kind swaps everything, one copy after the other, and so needs the least
memory that there is; meanwhile it is recorded. From then on the plan says which blocks leave, when
their memory is given up and when they are fetched. Any event that differs from the plan's is served
on demand, and learned again.
"""

from __future__ import annotations

from collections.abc import Iterable
from weakref import WeakValueDictionary

import torch

from lms.hooks.recomputed_layers import WatchedLayer
from lms.iteration_state import Guide, LayerUses, OptimizerSteps, Progress, Runtime
from lms.paging.paged_parameter import IdlePeriod, PagedParameter
from lms.paging.saved_storage import SavedStorage
from lms.paging.swappable import Swappable
from lms.paging.tensors import empty_shell
from lms.planning.plan import Plan
from lms.planning.recorder import Recorder
from lms.planning.trace import LayerCall, PackKey, Shape, Trace

#: The recordings of an iteration: in the first, a slow host may hide the device's own times.
RECORDINGS = 2


class Iteration:
    """One iteration of the program.

    Attributes:
        number: counts them.
        storages: those that it has saved, by number; `idle` its parameters' idle periods.
        outside: parameters in memory for a use that no plan sees.
    """

    def __init__(
        self, number: int, runtime: Runtime, choice: int = 0, earlier: bool = False
    ) -> None:
        self.number, self.runtime, self.device = number, runtime, runtime.device
        self.progress = Progress(blocks=len(runtime.parameters))
        self.guide = Guide()
        self.steps = OptimizerSteps(earlier)
        self.layers = LayerUses(choice)
        self.storages: WeakValueDictionary[int, SavedStorage] = WeakValueDictionary()
        self.idle: WeakValueDictionary[int, IdlePeriod] = WeakValueDictionary()
        self.outside: list[PagedParameter] = []

    # -- from the first event to the last

    def begin(self, before: Iteration) -> None:
        """The first event is about to come.

        Args:
            before: the iteration that has ended.
        """
        self.runtime.releases.remove(before.idle.values())
        # Storages that are left over are not in the way of those to come.
        self.runtime.releases.recall(before.storages.values())
        self._send_unreferenced(0)
        before.layers.given.clear()
        parameters = self.runtime.parameters
        for number, parameter in enumerate(parameters):
            parameter.idle = self.idle[number] = IdlePeriod(parameter, number)
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
        return all(storage.used for storage in self.storages.values())

    @property
    def over(self) -> bool:
        """Whether it has ended: nothing is saved, or only storages that backward has used.

        A step of an optimizer does not end it. If two models learn from one graph, the first steps
        before the second's backward. But once an optimizer has made its next step, storages that no
        backward has used are not waited for: a loss that is only looked at has a graph while it is
        kept.
        """
        if not self.storages:
            return self.progress.packed or self.steps.stepped
        return self.steps.repeated or (self.steps.stepped and self.at_rest)

    def finish(self) -> tuple[Trace | None, Trace | None]:
        """Ends the iteration; returns the recorded trace, and that of the followed plan."""
        recorder, followed = self.guide.recorder, self.guide.trace
        self.abandon()
        if recorder is None:
            return None, followed
        trace = recorder.finish()
        trace.stepped = self.steps.stepped and self.steps.earlier
        trace.calls = tuple(self.layers.calls)
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
            self.runtime.by_address[storage._cdata] = self.storages[number] = block
            self.runtime.releases.put(block)
        if self.guide.recorder is not None:
            self.guide.recorder.pack(key, tensor)
        self._event_ends()
        return block

    def unpack(self, block: SavedStorage) -> None:
        """A tensor of a storage is used."""
        block.used = True
        self._use_begins(block.number)
        if block.flat is None:
            self._count_missed(block.number)
        block.ready()
        self._event_ends()

    def use(self, parameter: PagedParameter) -> None:
        """A parameter is used: its idle period ends, and another begins."""
        idle, progress = parameter.idle, self.progress
        self._use_begins(idle.number)
        if not parameter.resident:
            self._count_missed(idle.number)
        parameter.ready()
        idle.used = True
        self._event_ends()
        number = progress.blocks
        key = PackKey(number, parameter.nbytes, parameter.shape, parameter.dtype)
        progress.blocks += 1
        self._event_begins(key, number)
        parameter.idle = self.idle[number] = IdlePeriod(parameter, number)
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

    def _count_missed(self, number: int) -> None:
        """A block is away that is used now; counts it unless the plan fetches it with its use."""
        if self.guide.plan is not None:
            move = self.guide.plan.moves.get(number)
            self.runtime.missed += move is None or move.fetch < len(self.progress.keys) - 1

    def _event_begins(self, key: PackKey | None, number: int) -> None:
        """An event begins: finds the plan that fits, and gives up the blocks that it says."""
        event, guide = self.progress.add(key, number), self.guide
        if guide.recorder is None or guide.trace is not None:
            self._follow(event)
        if guide.recorder is not None:
            guide.recorder.event_begins()
        self._send_unreferenced(event)
        if guide.plan is None or event >= len(guide.releases):
            return
        for released in guide.releases[event]:
            block = self._block(released)
            if block is not None and not block.used and block.on_host:
                block.release()
                if isinstance(block, IdlePeriod) and not block.absent:
                    self.runtime.releases.put(block)

    def _event_ends(self) -> None:
        """The event has been served: fetches the blocks that the plan says."""
        event, guide = len(self.progress.keys) - 1, self.guide
        if guide.plan is not None and event < len(guide.fetches):
            for wanted in guide.fetches[event]:
                block = self._block(wanted)
                if block is not None:
                    block.page_in()
        if guide.recorder is not None:
            guide.recorder.event_ends()

    def _block(self, number: int) -> Swappable | None:
        """The block that a plan calls so, if it still exists."""
        return self.storages.get(number) or self.idle.get(number)

    def _send_unreferenced(self, event: int) -> None:
        """Sends out blocks that the program itself does not hold any more; gives up those due.

        While everything is swapped, a block is due at once: it then dies between two events, and
        the memory of an interval is that of the same blocks from its beginning to its end.
        """
        guide = self.guide
        for block in self.runtime.releases.take_unreferenced():
            if isinstance(block, SavedStorage) and block.owner is not self:
                block.page_out()
                block.release()
                continue
            move = guide.plan.moves.get(block.number) if guide.plan else None
            if guide.plan is not None and move is None:
                block.offer()
                continue
            block.page_out()
            if move is None or move.release <= event:
                block.release()
                if guide.recorder is not None:
                    guide.recorder.storage_left(block.number)

    # -- following a plan, or recording

    def _follow(self, event: int) -> None:
        """Keeps to a plan as long as this iteration is like the one that it was made for."""
        guide, plans, parameters = self.guide, self.runtime.plans, self.runtime.parameters
        if guide.trace is not None and self.progress.is_in(guide.trace, event):
            return
        older = guide.trace
        guide.drop()
        if not plans.record_next and self._adopt_plan(event):
            return
        plans.record_next = False
        if not event:
            for parameter in parameters:
                parameter.idle.release()
        guide.recorder = Recorder(self.device, parameters)
        if older is not None and event:
            guide.resumed = True
            held = {
                number: block.flat
                for number, block in self.storages.items()
                if block.flat is not None
            }
            guide.recorder.resume(older, event, held)
            # Everything leaves that a plan has kept until now, once the model lets go of it.
            self.runtime.releases.recall(self._blocks())

    def _adopt_plan(self, event: int) -> bool:
        """Takes the plan that fits the events so far; whether there is one."""
        progress, guide = self.progress, self.guide
        found = self.runtime.plans.find(progress.keys, progress.order, progress.base)
        if found is None:
            return False
        guide.follow(*found)
        self._catch_up(found[1], event)
        if not event and found[0].recordings < RECORDINGS:
            guide.recorder = Recorder(self.device, self.runtime.parameters)
        return True

    def _catch_up(self, plan: Plan, event: int) -> None:
        """Sends out blocks that another plan has kept until now and this one does not; and back."""
        due = {number for number, move in plan.moves.items() if move.release <= event}
        self.runtime.releases.recall(
            block for block in self._blocks() if not block.on_host or block.number in due
        )
        for parameter in self.runtime.parameters:
            if parameter.idle.number not in plan.moves:
                parameter.idle.page_in()

    def _blocks(self) -> list[Swappable]:
        """All of this iteration that exist."""
        return [*self.storages.values(), *self.idle.values()]

    def reclaim(self) -> int:
        """Gives up, at once, all memory that nothing but backward needs; returns its bytes."""
        freed = 0
        for block in self._blocks():
            block.recall()
            if block.absent or block.referenced:
                continue
            block.page_out()
            block.release()
            freed += block.nbytes * block.freed
        return freed

    def stays(self, parameter: PagedParameter) -> bool:
        """Whether a parameter is to be in memory when the next iteration begins."""
        guide = self.guide
        if guide.plan is None or guide.trace is None or not guide.trace.stepped:
            return False
        return parameter.index not in guide.plan.moves

    @property
    def step_is_planned(self) -> bool:
        """Whether the plan knows the memory of an optimizer's step."""
        return self.guide.trace is not None and self.guide.trace.stepped

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
            first: its first event.
            tensors: its arguments and results.
            shape: of the first.
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
