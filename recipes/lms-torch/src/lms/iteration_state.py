"""The state of one iteration, and the state that all iterations share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from weakref import WeakValueDictionary

import torch

from lms.errors import HostMemoryError
from lms.hooks.recomputed_layers import WatchedLayer
from lms.operations.log import OperationLog
from lms.paging.device import Device
from lms.paging.paged_parameter import IdlePeriod, PagedParameter
from lms.paging.saved_storage import SavedStorage
from lms.paging.swappable import ReleaseQueue, Swappable
from lms.planning.plan import Plan
from lms.planning.plan_cache import PlanCache
from lms.planning.recorder import Recorder
from lms.planning.trace import LayerCall, PackKey, Trace


@dataclass
class Runtime:
    """The state that all iterations of a program share.

    Attributes:
        parameters: those that are paged.
        releases: the queue of all that is to leave.
        by_address: the saved storages that are on the device.
        operations: the log of the program's, if they may be computed again.
        missed: copies back that no plan had foreseen.
        host_full: why blocks have stayed in this iteration that were to leave, if any have.
    """

    device: Device
    plans: PlanCache
    operations: OperationLog | None = None
    parameters: list[PagedParameter] = field(default_factory=list)
    releases: ReleaseQueue = field(default_factory=ReleaseQueue)
    by_address: WeakValueDictionary[int, SavedStorage] = field(default_factory=WeakValueDictionary)
    missed: int = 0
    host_full: HostMemoryError | None = None


@dataclass
class Progress:
    """The events of an iteration so far, as `Trace` keeps them.

    Attributes:
        blocks: how many blocks there are so far.
        packed: whether anything that can leave was saved.
        earlier: whether there were optimizers' steps before.
        started: the moment of the first event; `base` the bytes in use then, beside parameters
            that are paged.
    """

    blocks: int = 0
    packed: bool = False
    earlier: bool = False
    started: Any = None
    base: int = 0
    keys: list[PackKey | None] = field(default_factory=list)
    order: list[int] = field(default_factory=list)

    def add(self, key: PackKey | None, number: int) -> int:
        """Adds an event; returns its number."""
        self.keys.append(key)
        self.order.append(number)
        return len(self.keys) - 1

    def is_in(self, trace: Trace, event: int) -> bool:
        """Whether `trace` has the same event there."""
        if event >= len(trace.keys) or trace.keys[event] != self.keys[event]:
            return False
        return trace.order[event] == self.order[event]

    def stop(self) -> None:
        """There are no more events."""
        self.started, self.keys, self.order = None, [], []


@dataclass
class Blocks:
    """The blocks of an iteration that exist.

    Attributes:
        storages: those that it has saved, by number; `idle` its parameters' idle periods.
    """

    storages: WeakValueDictionary[int, SavedStorage] = field(default_factory=WeakValueDictionary)
    idle: WeakValueDictionary[int, IdlePeriod] = field(default_factory=WeakValueDictionary)

    def find(self, number: int) -> Swappable | None:
        """The block that a plan calls so, if it still exists."""
        return self.storages.get(number) or self.idle.get(number)

    def all(self) -> list[Swappable]:
        """Storages first."""
        return [*self.storages.values(), *self.idle.values()]


@dataclass
class Guide:
    """The plan that an iteration follows, with its trace, and the recorder that learns it.

    Attributes:
        releases: for each event the blocks to release; `fetches` those to fetch.
        resumed: whether recording began in the midst of the iteration.
    """

    trace: Trace | None = None
    plan: Plan | None = None
    recorder: Recorder | None = None
    releases: list[list[int]] = field(default_factory=list)
    fetches: list[list[int]] = field(default_factory=list)
    resumed: bool = False

    def drop(self) -> None:
        """Follows and records nothing any more."""
        self.trace = self.plan = self.recorder = None

    def follow(self, trace: Trace, plan: Plan) -> None:
        """Follows a plan from now on."""
        self.trace, self.plan = trace, plan
        self.releases, self.fetches = plan.by_event(len(trace.order))


@dataclass
class OptimizerSteps:
    """The optimizers' steps in an iteration.

    Attributes:
        earlier: whether there were steps before the iteration.
        stepped: whether there was one in it.
        repeated: whether an optimizer has stepped, and again after more was saved.
        made: bytes that they have left in memory: the state, in the first.
    """

    earlier: bool = False
    stepped: bool = False
    repeated: bool = False
    made: int = 0
    blocks: dict[int, int] = field(default_factory=dict)  # by optimizer, at its first step

    def add(self, optimizer: torch.optim.Optimizer, blocks: int) -> None:
        """An optimizer has made its step, when there were so many blocks."""
        self.stepped = True
        self.repeated |= self.blocks.setdefault(id(optimizer), blocks) < blocks


@dataclass
class LayerUses:
    """The layers of an iteration that may be computed again.

    Attributes:
        choice: the number of the choice of layers; `switched` whether that has changed since.
        given: each layer's tensors, and their versions then: autograd's check for changes is off.
    """

    choice: int = 0
    switched: bool = False
    calls: list[LayerCall] = field(default_factory=list)
    given: list[tuple[WatchedLayer, torch.Tensor, int]] = field(default_factory=list)

    def exclude_changed(self) -> None:
        """Layers whose tensors have been changed in place cannot be computed again."""
        for layer, given, version in self.given:
            if given._version != version:
                layer.excluded = "it is given a tensor that is changed in place"
