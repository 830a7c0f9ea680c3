"""The engine: keeps one program on one device below a limit, iteration by iteration."""

from __future__ import annotations

import math
import sys
import threading
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext

import torch

from lms.errors import HostMemoryError, NoPlanError
from lms.hooks.eligibility import EligibleTensors
from lms.hooks.parameter_access import Paged
from lms.hooks.recomputed_layers import WatchedLayer
from lms.hooks.saved_tensors import SavedTensor
from lms.iteration import Iteration
from lms.iteration_state import Runtime
from lms.operations.log import OperationLog
from lms.paging.device import Device
from lms.paging.paged_parameter import PagedParameter, paged_parameter_in
from lms.paging.saved_storage import SavedStorage
from lms.paging.source import is_result
from lms.plan_follower import RECORDINGS
from lms.planning.floor import Floor, no_plan
from lms.planning.plan_cache import PlanCache
from lms.planning.planner import least_memory, make_plan
from lms.planning.recompute_operations import repeat_operations
from lms.planning.recompute_policy import RecomputePolicy
from lms.planning.trace import Shape, Trace, is_same, merge

#: The share of the limit by which the memory under an iteration may differ from that of its plan;
#: plans leave it free.
_TOLERANCE = 1 / 256


class Engine:
    """Serves autograd's hooks, uses of paged parameters, layers and optimizers' steps.

    Args:
        limit: bytes on the device, of which the device says how many may be planned.
        smallest: storages of fewer bytes always stay.
        recompute_operations: whether single operations may be computed again.

    Attributes:
        limit: bytes that may be planned; `asked` those that were given.
        iteration: the one that runs, or has ended last.
        layers: those that may be computed again.
        learned: iterations that were recorded.
        measured: seconds of the last whole iteration.
    """

    watched_class: type[torch.nn.Parameter] = Paged

    def __init__(
        self, device: Device, limit: int, smallest: int, recompute_operations: bool = False
    ) -> None:
        self.device, self.asked, self.smallest = device, limit, smallest
        self.limit = device.cap(limit)
        tolerance = int(self.limit * _TOLERANCE)
        self.plannable = self.limit - tolerance
        self.eligible = EligibleTensors(device, smallest)
        self.plans = PlanCache(tolerance, self.limit)
        self.layers = RecomputePolicy(tolerance)
        self.learned, self.measured = 0, 0.0
        self._runtime = Runtime(device, self.plans)
        if recompute_operations:
            find = self._runtime.by_address.get
            self._runtime.operations = OperationLog(device, smallest, find, self._restore)
        self.iteration = Iteration(0, self._runtime)
        self._stepped = self._told = False  # ever
        self._lock = threading.RLock()

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """The code inside is LMS's own, in one thread: nothing in it is saved or watched."""
        operations = self._runtime.operations
        ours = nullcontext() if operations is None else operations.aside()
        with self._lock, ours, self.device.aside(), torch.no_grad():
            with torch._C.DisableTorchFunctionSubclass():
                yield

    # -- autograd's hooks

    def pack(self, tensor: torch.Tensor) -> SavedTensor:
        """Called by autograd with each tensor that it saves."""
        result = is_result(tensor, sys._getframe().f_back)
        with self._exclusive():
            parameter = paged_parameter_in(tensor)
            if parameter is not None or tensor not in self.eligible:
                return SavedTensor(tensor, parameter, self.iteration.number, result)
            iteration = self._current()
            return SavedTensor(tensor, iteration.pack(tensor), iteration.number, result)

    def unpack(self, saved: SavedTensor) -> torch.Tensor:
        """Called by autograd with the result of `pack`, each time that it needs the tensor.

        Raises:
            InplaceError: it was changed in place since.
        """
        saved.check()
        owner = saved.owner()
        if owner is None:
            return saved.tensor
        with self._exclusive():
            # After the end of its iteration, a tensor is served without an event.
            if saved.iteration == self.iteration.number and self.iteration.begun:
                if isinstance(owner, SavedStorage):
                    self.iteration.unpack(owner)
                else:
                    self.iteration.use(owner)
            return saved.view_of(owner.ready())

    # -- iterations

    def _current(self) -> Iteration:
        """The iteration of the event that is about to come."""
        if not self.iteration.begun or self.iteration.over:
            self._begin()
        return self.iteration

    def _begin(self) -> None:
        """Begins a new iteration."""
        self.finish()
        before = self.iteration
        if not before.steps.stepped:
            before.layers.switched |= self.layers.switch()
        if before.layers.switched:
            self.plans.forget()
        self.iteration = Iteration(
            before.number + 1, self._runtime, self.layers.changes, earlier=self._stepped
        )
        self.iteration.begin(before)

    @property
    def operations(self) -> OperationLog | None:
        """The log of the program's operations, if they may be computed again."""
        return self._runtime.operations

    def _restore(self, storages: list[SavedStorage]) -> None:
        """Computes storages again before a change makes that impossible; they wait on the host.

        The plan does not know of the change, so there may be little room; another is learned.
        """
        if not any(storage.dropped for storage in storages):
            return
        with self._exclusive():
            self.plans.record_next = True
            for storage in storages:
                if storage.dropped:
                    self.iteration.reclaim()
                    storage.page_in()
                    storage.page_out()
                    storage.release()
            self.iteration.reclaim()

    def finish(self) -> None:
        """Ends the iteration: a recorded one becomes known, with a plan.

        Raises:
            NoPlanError: there is none.
        """
        with self._exclusive():
            started = self.iteration.progress.started
            if started is not None:
                self.measured = self.device.seconds(started, self.device.stamp())
            trace, followed = self.iteration.finish()
            if trace is not None:
                self._learn(trace, followed)

    def _learn(self, trace: Trace, followed: Trace | None) -> None:
        """Makes a plan for a recorded iteration, which has followed a plan or not."""
        if followed is not None:
            if not is_same(followed, trace):
                return
            trace = merge(followed, trace)
        self.learned += followed is None
        iteration, rates = self.iteration, self.device.rates
        chosen_before = iteration.layers.choice == self.layers.changes
        try:
            plan = make_plan(trace, self.plannable, rates, self.smallest)
            plan = repeat_operations(trace, plan, self.plannable, rates, self.smallest)
        except NoPlanError:
            if iteration.guide.resumed:
                # The trace does not show of all blocks whether they can leave.
                self.plans.record_next = True
            elif chosen_before and not self.layers.retreat():
                raise self._no_plan_for(trace) from None
            return
        self.plans.add(trace, plan)
        if trace.recordings >= RECORDINGS and chosen_before:
            iteration.layers.exclude_changed()
            self.layers.consider(trace, plan, self.plannable, rates, self.smallest)

    def stepped(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer has made its step: whatever is packed from now on is a new iteration's."""
        with self._lock:
            self._tell_if_elsewhere()
            self._stepped = True
            self.iteration.steps.made += self.device.memory()
            self.iteration.steps.add(optimizer, self.iteration.progress.blocks)
            self.iteration.layers.switched |= self.layers.switch()

    def _tell_if_elsewhere(self) -> None:
        """Warns, once, if a step has saved tensors, but none in the memory that is limited."""
        here, elsewhere = self.eligible.take_places()
        if not here and elsewhere is not None and not self._told:
            self._told = True
            warnings.warn(
                "LMS has no effect: nothing that backward needs lies on the device whose memory is "
                f"limited, as it is on {elsewhere}; if the model has moved there, switch LMS off "
                "and, with that device as the current one, on again",
                RuntimeWarning,
                stacklevel=2,
            )

    @property
    def settled(self) -> bool:
        """Whether the next iteration of this kind will go as this one has."""
        with self._lock:
            switched = self.layers.pending or self.iteration.layers.switched
            return self.iteration.guide.recorder is None and not switched

    @property
    def missed(self) -> int:
        """Copies back that no plan had foreseen."""
        return self._runtime.missed

    @property
    def host_full(self) -> HostMemoryError | None:
        """Why something has stayed in this iteration that was to leave, if anything has."""
        return self._runtime.host_full

    @property
    def learning(self) -> bool:
        """Whether everything is swapped that can be: no plan keeps anything."""
        return self.iteration.guide.plan is None

    def _forget(self) -> None:
        """Forgets all that was learned, this iteration too."""
        self.iteration.abandon()
        self.plans.reset()

    # -- parameters that are paged

    def page(self, parameters: Iterable[torch.nn.Parameter]) -> list[PagedParameter]:
        """Pages some parameters from now on: their bytes leave at once. All is learned anew.

        Raises:
            HostMemoryError: the host has no memory for them; none is paged then.
        """
        with self._exclusive():
            self._forget()
            everything, added = self._runtime.parameters, list[PagedParameter]()
            for parameter in parameters:
                added.append(PagedParameter(self, parameter, len(everything)))
                everything.append(added[-1])
            try:
                for paged in added:
                    if not paged.referenced:
                        paged.release()
            except HostMemoryError:
                self.unpage(added, keep=True)
                raise
        return added

    def unpage(self, parameters: Iterable[PagedParameter], keep: bool) -> None:
        """Brings parameters back for good, or has done with them."""
        with self._exclusive():
            self._forget()
            gone, everything = set(parameters), self._runtime.parameters
            everything[:] = [parameter for parameter in everything if parameter not in gone]
            for parameter in gone:
                parameter.forget(keep)
            for index, parameter in enumerate(everything):
                parameter.index = index

    def before_use(self, parameter: PagedParameter) -> None:
        """The program is about to use a paged parameter."""
        training = torch.is_grad_enabled()
        with self._exclusive():
            if training or self.iteration.blocks.storages:
                self._current().use(parameter)
            elif not parameter.resident:
                self.iteration.use_outside(parameter)

    def stays(self, parameter: PagedParameter) -> bool:
        """Whether a parameter is to be in memory when an iteration begins."""
        return self.iteration.follower.stays(parameter)

    def step_begins(self) -> None:
        """An optimizer is about to step; all parameters leave if no plan knows its memory."""
        if not self.iteration.follower.step_is_planned:
            with self._exclusive():
                for parameter in self._runtime.parameters:
                    parameter.idle.release()
        self.iteration.steps.made -= self.device.memory()

    def parameter_returns(self, parameter: PagedParameter) -> None:
        """A parameter is about to be in memory again."""
        if self.iteration.guide.recorder is not None:
            self.iteration.guide.recorder.parameter_returns(parameter)

    def parameter_released(self, parameter: PagedParameter) -> None:
        """A parameter's memory was given up."""
        if self.iteration.guide.recorder is not None:
            self.iteration.guide.recorder.parameter_released(parameter)

    # -- layers that may be computed again

    def add_layers(self, layers: Iterable[WatchedLayer]) -> None:
        """Lets layers be computed again from now on. All is learned anew."""
        with self._exclusive():
            self._forget()
            for layer in layers:
                layer.attach(self, self.layers.add(layer))

    def remove_layer(self, layer: WatchedLayer) -> None:
        """Lets a layer be computed again no more. All is learned anew."""
        with self._exclusive():
            self._forget()
            self.layers.remove(layer)

    def layer_begins(self, layer: WatchedLayer, tensors: list[torch.Tensor]) -> tuple[int, int]:
        """The forward of such a layer is about to run on `tensors`; for `layer_ends`."""
        with self._exclusive():
            return self.iteration.number, self.iteration.layer_begins(layer, tensors)

    def layer_ends(
        self, number: int, start: tuple[int, int], tensors: list[torch.Tensor], shape: Shape
    ) -> None:
        """The forward of such a layer has run.

        Args:
            start: the result of `layer_begins`.
            tensors: its arguments and results.
            shape: of the first tensor.
        """
        with self._exclusive():
            first = start[1] if start[0] == self.iteration.number else 0
            self.iteration.layer_ends(number, first, tensors, shape)

    # -- memory

    def reclaim(self) -> int:
        """Gives up, at once, all memory of saved tensors that nothing but backward needs.

        Returns:
            Bytes given up.
        """
        with self._exclusive():
            return self.iteration.reclaim()

    def _no_plan_for(self, trace: Trace) -> NoPlanError:
        """The error of a limit in which the next iteration like `trace` cannot run."""
        floor = least_memory(trace, self.smallest, max(0, self.iteration.steps.made))
        return no_plan(floor, self.asked, self._limit_for(floor.total))

    def _limit_for(self, plannable: int) -> int:
        """The limit by which so many bytes may be planned."""
        return self.device.limit_for(math.ceil(plannable / (1 - _TOLERANCE)))

    def no_plan_after(self, error: torch.OutOfMemoryError) -> NoPlanError:
        """The error for running out of memory while everything is swapped."""
        short, iteration = self.device.short_of(error), self.iteration
        keys = {key.block: key for key in iteration.progress.keys if key is not None}
        there = [n for n, block in iteration.blocks.storages.items() if block.flat is not None]
        saved = tuple(keys[number] for number in there if number in keys)
        floor = Floor(self.limit + short, iteration.progress.base, saved)
        return no_plan(floor, self.asked, self.asked + short, self.host_full)
