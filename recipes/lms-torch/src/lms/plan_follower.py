"""An iteration's plan: which of its blocks leave, and when they come back; or their recording.

The first iteration of each kind swaps everything, one copy after the other, and so needs the least
memory that there is; meanwhile it is recorded. From then on the plan says which blocks leave, when
their memory is given up and when they are fetched. Any event that differs from the plan's is served
on demand, and learned again.
"""

from __future__ import annotations

from lms.errors import HostMemoryError
from lms.iteration_state import Blocks, Guide, Progress, Runtime
from lms.operations.log import usable_for
from lms.paging.paged_parameter import IdlePeriod, PagedParameter
from lms.paging.saved_storage import SavedStorage
from lms.paging.swappable import Swappable
from lms.planning.plan import Plan
from lms.planning.recorder import Recorder

#: The recordings of an iteration: in the first, a slow host may hide the device's own times.
RECORDINGS = 2


class PlanFollower:
    """Keeps one iteration to a plan as long as it is like the one that the plan was made for."""

    def __init__(self, runtime: Runtime, progress: Progress, guide: Guide, blocks: Blocks) -> None:
        self._runtime, self._progress, self._guide = runtime, progress, guide
        self._blocks = blocks

    def event_begins(self, event: int) -> None:
        """An event begins: finds the plan that fits, and gives up the blocks that it says."""
        guide = self._guide
        if guide.recorder is None or guide.trace is not None:
            self._follow(event)
            self._watch()
        if self._runtime.operations is not None:
            self._runtime.operations.event()
        if guide.recorder is not None:
            guide.recorder.event_begins()
        self.send_unreferenced(event)
        if guide.plan is None or event >= len(guide.releases):
            return
        for released in guide.releases[event]:
            block = self._blocks.find(released)
            if block is not None and not block.used and block.on_host:
                block.release()
                if isinstance(block, IdlePeriod) and not block.absent:
                    self._runtime.releases.put(block)

    def event_ends(self, event: int) -> None:
        """The event has been served: fetches the blocks that the plan says."""
        guide = self._guide
        if guide.plan is not None and event < len(guide.fetches):
            for wanted in guide.fetches[event]:
                block = self._blocks.find(wanted)
                if block is not None:
                    block.page_in()
        if guide.recorder is not None:
            guide.recorder.event_ends()

    def count_missed(self, number: int) -> None:
        """A block is away that is used now; counts it unless the plan fetches it with its use."""
        if self._guide.plan is not None and number not in self._guide.plan.again:
            move = self._guide.plan.moves.get(number)
            self._runtime.missed += move is None or move.fetch < len(self._progress.keys) - 1

    def send_unreferenced(self, event: int) -> None:
        """Sends out blocks that the program itself does not hold any more; gives up those due.

        While everything is swapped, a block is due at once: it then dies between two events, and
        the memory of an interval is that of the same blocks from its beginning to its end.
        """
        guide = self._guide
        for block in self._runtime.releases.take_unreferenced():
            is_ours = self._blocks.storages.get(block.number) is block
            if isinstance(block, SavedStorage) and not is_ours:  # of an earlier iteration
                if self.send(block):
                    block.release()
                continue
            if guide.plan is not None and block.number in guide.plan.again:
                assert isinstance(block, SavedStorage)
                self._drop(block)
                continue
            move = guide.plan.moves.get(block.number) if guide.plan else None
            if guide.plan is not None and move is None:
                block.offer()
                continue
            sent = self.send(block)
            if move is None or move.release <= event:
                if sent:
                    block.release()
                if guide.recorder is not None:
                    guide.recorder.storage_left(block.number)

    def send(self, block: Swappable) -> bool:
        """Begins a copy out; whether the host has memory for it. Otherwise the block stays."""
        try:
            block.page_out()
        except HostMemoryError as full:
            self._runtime.host_full = full
            return False
        return True

    def _watch(self) -> None:
        """Notes the program's operations while they are needed."""
        if (operations := self._runtime.operations) is not None:
            plan = self._guide.plan
            operations.measuring = self._guide.recorder is not None
            operations.watching = plan is None or bool(plan.again)

    def _drop(self, block: SavedStorage) -> None:
        """Gives up a block that is computed again, or sends it out where that is not possible."""
        operations, trace = self._runtime.operations, self._guide.trace
        assert operations is not None  # or no plan would want it
        assert trace is not None
        recipe = operations.recipe(block, usable_for(trace, block.number))
        if recipe is not None:
            block.drop(recipe)
        elif self.send(block):
            block.release()

    def _follow(self, event: int) -> None:
        """Keeps to a plan as long as this iteration is like the one that it was made for."""
        guide, plans, parameters = self._guide, self._runtime.plans, self._runtime.parameters
        if guide.trace is not None and self._progress.is_in(guide.trace, event):
            return
        older = guide.trace
        guide.drop()
        if not plans.record_next and self._adopt_plan(event):
            return
        plans.record_next = False
        if not event:
            for parameter in parameters:
                parameter.idle.release()
        guide.recorder = Recorder(self._runtime.device, parameters)
        if older is not None and event:
            guide.resumed = True
            held = {
                number: block.flat
                for number, block in self._blocks.storages.items()
                if block.flat is not None
            }
            guide.recorder.resume(older, event, held)
            # Everything leaves that a plan has kept until now, once the model lets go of it.
            self._runtime.releases.recall(self._blocks.all())

    def _adopt_plan(self, event: int) -> bool:
        """Takes the plan that fits the events so far; whether there is one."""
        progress, guide = self._progress, self._guide
        found = self._runtime.plans.find(
            progress.keys, progress.order, progress.base, progress.earlier
        )
        if found is None:
            return False
        guide.follow(*found)
        self._catch_up(found[1], event)
        if not event and found[0].recordings < RECORDINGS:
            guide.recorder = Recorder(self._runtime.device, self._runtime.parameters)
        return True

    def _catch_up(self, plan: Plan, event: int) -> None:
        """Sends out blocks that another plan has kept until now and this one does not; and back."""
        due = {number for number, move in plan.moves.items() if move.release <= event}
        self._runtime.releases.recall(
            block for block in self._blocks.all() if not block.on_host or block.number in due
        )
        for parameter in self._runtime.parameters:
            if parameter.idle.number not in plan.moves:
                parameter.idle.page_in()

    def stays(self, parameter: PagedParameter) -> bool:
        """Whether a parameter is to be in memory when the next iteration begins."""
        guide = self._guide
        if guide.plan is None or guide.trace is None or not guide.trace.stepped:
            return False
        return parameter.index not in guide.plan.moves

    @property
    def step_is_planned(self) -> bool:
        """Whether the plan knows the memory of an optimizer's step."""
        return self._guide.trace is not None and self._guide.trace.stepped
