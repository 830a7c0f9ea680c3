"""An iteration under LMS: its events, learning them, and following the plan that was made of them.

The first iteration of each kind swaps everything, one copy after the other, and so needs the least
memory that there is; meanwhile it is recorded. From then on the plan says what leaves, when its
memory is given up and when it is fetched. What does not happen as it did before is served on
demand, and learned again.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from lms.blocks import Block
from lms.device import Device
from lms.errors import NoPlanError
from lms.layers import Layer, Layers
from lms.managed import Managed
from lms.plan import Plan, make_plan
from lms.recorder import Recorder
from lms.trace import Call, Key, Trace, merge, same
from lms.weights import Gap, Weight

#: Plans that are kept; the one that was used least recently goes first.
_PLANS = 32
#: How often an iteration is recorded: in the first, a slow host may hide the device's own times.
_LOOKS = 2
#: The share of the limit by which the memory under an iteration may differ from what its plan was
#: made for; plans leave it free.
_SLIGHT = 1 / 256


class Iterations:
    """The iterations of one program on one device, each below the limit.

    Args:
        limit: bytes that may be planned.
        smallest: storages of fewer bytes always stay.
    """

    def __init__(self, device: Device, limit: int, smallest: int) -> None:
        self.device, self.limit, self.smallest = device, limit, smallest
        self.slight = int(limit * _SLIGHT)
        self.iteration = 0
        self.known: list[tuple[Trace, Plan]] = []  # the last used first
        self.learned = 0  # iterations that were recorded
        self.missed = 0  # copies back that no plan had foreseen
        self.measured = 0.0  # seconds of the last whole iteration
        self._lock = threading.RLock()
        self._blocks: weakref.WeakValueDictionary[int, Block] = weakref.WeakValueDictionary()
        self._numbered: weakref.WeakValueDictionary[int, Block] = weakref.WeakValueDictionary()
        self._gaps: weakref.WeakValueDictionary[int, Gap] = weakref.WeakValueDictionary()
        self.managed = Managed(device, smallest)
        self.weights: list[Weight] = []  # parameters that are paged
        self.layers = Layers()
        self._calls: list[Call] = []
        # What layers were given, and its version then: what changes in place, backward cannot use.
        self._given: list[tuple[Layer, torch.Tensor, int]] = []
        self._turn, self._switched = 0, False  # of `layers`: the iteration's, and since it began
        self._strays: list[Weight] = []  # those in memory for a use that no plan sees
        self._stepped, self._steps, self._earlier = False, 0, 0
        self._steppers: dict[int, int] = {}  # by optimizer, the blocks at its first step
        self._twice = False  # whether one has stepped, and again after more was saved
        self._started: Any = None
        self._keys: list[Key | None] = []
        self._order: list[int] = []
        self._count = 0
        self._packed = False  # whether anything that can leave was saved
        # What is to leave, or to be offered, once the program holds it no more; in this order.
        self._waiting: weakref.WeakKeyDictionary[Block | Gap, None] = weakref.WeakKeyDictionary()
        self._recorder: Recorder | None = None
        self._trace: Trace | None = None
        self._plan: Plan | None = None
        self._resumed = False  # whether recording began in the midst of the iteration
        self._anew = False  # whether the next iteration is to be recorded, whatever is known
        self._actions: tuple[list[list[int]], list[list[int]]] = ([], [])
        self._base = 0

    @contextmanager
    def _aside(self) -> Iterator[None]:
        """What runs inside is LMS's own: no part of the program, nothing to save or to watch."""
        with self.device.aside(), torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
            yield

    # -- iterations

    def stepped(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer has made its step: what is packed from now on is a new iteration's."""
        with self._lock:
            self._stepped, self._steps = True, self._steps + 1
            self._twice |= self._steppers.setdefault(id(optimizer), self._count) < self._count
            self._switched |= self.layers.switch()

    def _over(self) -> bool:
        """Whether the iteration has ended: nothing is saved, or only what backward has used.

        Not with each step of an optimizer: of two models that learn from one graph, the first
        steps before the second's backward. But once one has made its next step, what no backward
        has used is not waited for: a loss that is only looked at has a graph while it is kept.
        """
        if not self._numbered:
            return self._packed or self._stepped
        return self._twice or (
            self._stepped and all(block.used for block in self._numbered.values())
        )

    def finish(self) -> None:
        """Ends the iteration: a recorded one becomes known, with a plan.

        Raises:
            NoPlanError: there is none.
        """
        with self._lock, self._aside():
            if self._started is not None:
                self.measured = self.device.seconds(self._started, self.device.stamp())
            recorder, self._recorder, self._started = self._recorder, None, None
            older, self._trace, self._plan = self._trace, None, None
            self._keys, self._order = [], []
            if recorder is not None:
                trace = recorder.finish()
                trace.stepped = self._stepped and self._earlier > 0
                trace.calls = tuple(self._calls)
                self._learn(trace, older)

    @property
    def resting(self) -> bool:
        """Whether no backward is to come that needs what has been saved."""
        return all(block.used for block in self._numbered.values())

    @property
    def settled(self) -> bool:
        """Whether the next iteration of this kind will go as this one has."""
        with self._lock:
            return self._recorder is None and not (self.layers.pending or self._switched)

    def abandon(self) -> None:
        """Forgets what was learned, this iteration too."""
        self._recorder = self._started = self._trace = self._plan = None
        self._keys, self._order, self.known, self._anew = [], [], [], False

    def _learn(self, trace: Trace, followed: Trace | None) -> None:
        """Makes a plan for what was recorded, with a plan to follow or without."""
        if followed is not None:
            if not same(followed, trace):
                return
            trace = merge(followed, trace)
        self.learned += followed is None
        try:
            plan = make_plan(trace, self.limit - self.slight, self.device.rates, self.smallest)
        except NoPlanError:
            if self._resumed:
                self._anew = True  # of a part of the blocks it is not known whether they can leave
            elif self._turn == self.layers.turn and not self.layers.retreat():
                raise
            return
        kept = [pair for pair in self.known if not self._alike(pair[0], trace)]
        self.known = [(trace, plan), *kept[: _PLANS - 1]]
        if trace.seen >= _LOOKS and self._turn == self.layers.turn:
            for layer, given, version in self._given:
                if given._version != version:
                    layer.fixed = "what it is given is changed in place"
            rates, limit = self.device.rates, self.limit - self.slight
            self.layers.consider(trace, plan, limit, rates, self.smallest, self.slight)

    def _alike(self, first: Trace, second: Trace) -> bool:
        return abs(first.base - second.base) <= self.slight and same(first, second)

    def _begin(self) -> None:
        """A new iteration: its first pack is about to come."""
        self.finish()
        if not self._stepped:
            self._switched |= self.layers.switch()
        if self._switched:
            self.known = []  # of another choice of layers
        self._turn, self._switched, self._calls, self._given = self.layers.turn, False, [], []
        self._stepped, self._resumed, self._packed = False, False, False
        self._count, self._earlier = len(self.weights), self._steps
        self._steppers, self._twice = {}, False
        self.iteration += 1
        for gap in self._gaps.values():
            self._waiting.pop(gap, None)
        self._await(self._numbered.values())  # left over: not in the way of what comes
        self._send_unheld(0)
        self._numbered, self._gaps = weakref.WeakValueDictionary(), weakref.WeakValueDictionary()
        self._strays = []
        for number, weight in enumerate(self.weights):
            weight.gap = self._gaps[number] = Gap(weight, number)
        here = sum(weight.charged for weight in self.weights if weight.here)
        self._started, self._base = self.device.stamp(), self.device.memory() - here

    # -- events

    def _enter(self, key: Key | None, number: int = -1) -> None:
        """An event begins: find the plan that fits, and give up what it says."""
        event = len(self._keys)
        self._keys.append(key)
        self._order.append(number if key is None else key.block)
        if self._recorder is None or self._trace is not None:
            self._follow(event)
        if self._recorder is not None:
            self._recorder.enter()
        self._send_unheld(event)
        if self._plan is not None and event < len(self._actions[0]):
            for gone in self._actions[0][event]:
                block = self._there(gone)
                if block is not None and not block.used and block.sent:
                    block.release()
                    if isinstance(block, Gap) and not block.gone:
                        self._waiting[block] = None

    def _there(self, number: int) -> Block | Gap | None:
        """What a plan calls so, if it still is."""
        return self._numbered.get(number) or self._gaps.get(number)

    def _send_unheld(self, event: int) -> None:
        """Sends out what the program itself does not hold any more; gives it up if that is due.

        While everything is swapped, it is due at once: a block then dies between two events, and
        the memory of an interval is that of the same blocks from its beginning to its end.
        """
        for block in list(self._waiting):
            if not block.gone and block.held:
                continue
            del self._waiting[block]
            if block.gone:
                continue
            if isinstance(block, Block) and block.iteration != self.iteration:
                block.page_out()
                block.release()
                continue
            move = self._plan.moves.get(block.number) if self._plan else None
            if self._plan is not None and move is None:
                if isinstance(block, Block):
                    block.let_go()
                continue
            block.page_out()
            if move is None or move.release <= event:
                block.release()
                if self._recorder is not None:
                    self._recorder.left(block.number)

    def _leave(self) -> None:
        """The event has been served: fetch what the plan says."""
        event = len(self._keys) - 1
        if self._plan is not None and event < len(self._actions[1]):
            for wanted in self._actions[1][event]:
                block = self._there(wanted)
                if block is not None:
                    block.page_in()
        if self._recorder is not None:
            self._recorder.leave()

    def _follow(self, event: int) -> None:
        """Keeps to a plan as long as this iteration is like the one that it was made for."""
        if self._trace is not None and self._fits(self._trace, event):
            return
        older, self._trace, self._plan, self._recorder = self._trace, None, None, None
        if not self._anew and self._adopt(event):
            return
        self._anew = False
        if not event:
            for weight in self.weights:
                weight.gap.release()
        self._recorder = Recorder(self.device, self.weights)
        if older is not None and event:
            self._resumed = True
            held = {
                number: block.flat
                for number, block in self._numbered.items()
                if block.flat is not None
            }
            self._recorder.resume(older, event, held)
            self._send_all()

    def _fits(self, trace: Trace, event: int) -> bool:
        if event >= len(trace.keys) or trace.keys[event] != self._keys[event]:
            return False
        return trace.order[event] == self._order[event]

    def _adopt(self, event: int) -> bool:
        """Takes the plan that fits what has happened so far, made for as much memory."""
        # Gradients or an optimizer's state that were not there then take memory that the plan
        # counts on; where there were more, it is good enough.
        fitting = [
            (trace.base - self._base, place)
            for place, (trace, _) in enumerate(self.known)
            if len(trace.keys) > event
            and -self.slight <= trace.base - self._base <= self.limit // 8
            and self._begins(trace)
        ]
        if not fitting:
            return False
        self.known.insert(0, self.known.pop(min(fitting)[1]))
        self._trace, self._plan = self.known[0]
        self._actions = self._plan.at(len(self._trace.order))
        self._catch_up(event)
        if not event and self._trace.seen < _LOOKS:
            self._recorder = Recorder(self.device, self.weights)
        return True

    def _send_all(self) -> None:
        """Sends out what a plan has kept until now; it is given up once the model lets go of it."""
        self._await([*self._numbered.values(), *self._gaps.values()])

    def _await(self, blocks: Iterable[Block | Gap]) -> None:
        """Each leaves once the program holds it no more."""
        for block in blocks:
            if isinstance(block, Block):
                block.recall()
            if not block.gone:
                self._waiting[block] = None

    def _catch_up(self, event: int) -> None:
        """Sends out what another plan has kept until now and this one does not; and back."""
        assert self._plan is not None
        held: list[tuple[int, Block | Gap]] = [*self._numbered.items(), *self._gaps.items()]
        moves = self._plan.moves
        due = {number for number, move in moves.items() if move.release <= event}
        self._await(block for number, block in held if not block.sent or number in due)
        for weight in self.weights:
            if weight.gap.number not in moves:
                weight.gap.page_in()

    def _begins(self, trace: Trace) -> bool:
        """Whether this iteration has gone as `trace` does, so far."""
        events = len(self._keys)
        return trace.keys[:events] == self._keys and trace.order[:events] == self._order
