"""The engine: autograd's hooks on saved tensors, learning an iteration and following its plan.

The first iteration of each kind swaps everything, one copy after the other, and so needs the least
memory that there is; meanwhile it is recorded. From then on the plan says what leaves, when its
memory is given up and when it is fetched. What does not happen as it did before is served on
demand, and learned again.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from lms.blocks import Block, Saved
from lms.device import Device, holders_of_one
from lms.errors import NoPlanError
from lms.plan import Plan, make_plan
from lms.recorder import Recorder
from lms.sizes import size_text
from lms.trace import Key, Trace, merge, same

#: Plans that are kept; the one that was used least recently goes first.
_PLANS = 32
#: How often an iteration is recorded: in the first, a slow host may hide the device's own times.
_LOOKS = 2
#: The share of the limit by which the memory under an iteration may differ from what its plan was
#: made for; plans leave it free.
_SLIGHT = 1 / 256


_SOLE = holders_of_one()


class Engine:
    """Keeps one program on one device below a limit.

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
        self._parameters: dict[int, StorageWeakRef] = {}
        self._stepped = False
        self._started: Any = None
        self._keys: list[Key | None] = []
        self._order: list[int] = []
        self._count = 0
        self._waiting: list[Block] = []  # copied out, and held by the model too
        self._recorder: Recorder | None = None
        self._trace: Trace | None = None
        self._plan: Plan | None = None
        self._resumed = False  # whether recording began in the midst of the iteration
        self._anew = False  # whether the next iteration is to be recorded, whatever is known
        self._actions: tuple[list[list[int]], list[list[int]]] = ([], [])
        self._base = 0

    # -- autograd's hooks

    def pack(self, tensor: torch.Tensor) -> Saved:
        """Called by autograd with each tensor that it saves."""
        with self._lock, self.device.aside(), torch.no_grad():
            if not self._manages(tensor):
                return Saved(tensor, None)
            if not self._keys or self._over():
                self._begin()
            return Saved(tensor, self._pack(tensor))

    def unpack(self, saved: Saved) -> torch.Tensor:
        """Called by autograd with what `pack` returned, each time that it needs the tensor.

        Raises:
            InplaceError: it was changed in place since.
        """
        saved.check()
        block = saved.block
        if block is None:
            return saved.tensor
        with self._lock, self.device.aside(), torch.no_grad():
            if block.iteration == self.iteration:
                self._unpack(block)
            whole = block.ready()
            if whole.dtype != saved.dtype:
                whole = whole.view(saved.dtype)
            return whole.as_strided(saved.shape, saved.stride, saved.offset)

    def _manages(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor may leave: no parameter, no view of one, and not small."""
        if type(tensor) is not torch.Tensor and not _is_fake(tensor):
            if isinstance(tensor, torch.nn.Parameter):
                self._remember(tensor)
            return False
        if tensor.layout is not torch.strided or not self.device.owns(tensor):
            return False
        if isinstance(tensor._base, torch.nn.Parameter):
            self._remember(tensor)
            return False
        if tensor.is_conj() or tensor.is_neg():
            return False
        storage = tensor.untyped_storage()
        reference = self._parameters.get(storage._cdata)
        if reference is not None and not reference.expired():
            return False
        nbytes = storage.nbytes()
        return nbytes >= max(self.smallest, 1) and nbytes % tensor.element_size() == 0

    def _remember(self, tensor: torch.Tensor) -> None:
        """A parameter's storage: whatever shares it stays."""
        if tensor.layout is torch.strided:
            reference = StorageWeakRef(tensor.untyped_storage())
            self._parameters.setdefault(reference.cdata, reference)

    # -- iterations

    def stepped(self) -> None:
        """An optimizer has made its step: what is packed from now on is a new iteration's."""
        with self._lock:
            self._stepped = True

    def _over(self) -> bool:
        """Whether the iteration has ended: nothing is saved, or only what backward has used.

        Not with each step of an optimizer: of two models that learn from one graph, the first
        steps before the second's backward.
        """
        if not self._numbered:
            return True
        return self._stepped and all(block.used for block in self._numbered.values())

    def finish(self) -> None:
        """Ends the iteration: a recorded one becomes known, with a plan.

        Raises:
            NoPlanError: there is none.
        """
        with self._lock, self.device.aside(), torch.no_grad():
            if self._started is not None:
                self.measured = self.device.seconds(self._started, self.device.stamp())
            recorder, self._recorder, self._started = self._recorder, None, None
            older, self._trace, self._plan = self._trace, None, None
            self._keys, self._order = [], []
            if recorder is not None:
                self._learn(recorder.finish(), older)

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
            if not self._resumed:
                raise
            self._anew = True  # of a part of the blocks it is not known whether they can leave
            return
        kept = [pair for pair in self.known if not self._alike(pair[0], trace)]
        self.known = [(trace, plan), *kept[: _PLANS - 1]]

    def _alike(self, first: Trace, second: Trace) -> bool:
        return abs(first.base - second.base) <= self.slight and same(first, second)

    def _begin(self) -> None:
        """A new iteration: its first pack is about to come."""
        self.finish()
        self._stepped, self._resumed, self._count = False, False, 0
        self.iteration += 1
        self._numbered = weakref.WeakValueDictionary()
        self._waiting = []
        self._started, self._base = self.device.stamp(), self.device.memory()

    def _pack(self, tensor: torch.Tensor) -> Block:
        storage = tensor.untyped_storage()
        cdata = storage._cdata
        del storage
        block = self._blocks.get(cdata)
        fresh = (
            block is None
            or block.iteration != self.iteration
            or not block.is_in(cdata, tensor._version)
        )
        number = self._count if fresh or block is None else block.number
        key = Key(number, tensor.untyped_storage().nbytes(), tuple(tensor.shape), str(tensor.dtype))
        self._enter(key)
        if fresh or block is None:
            self._count += 1
            block = Block(self, number, tensor, tensor._version)
            self._blocks[cdata] = self._numbered[number] = block
        if self._recorder is not None:
            self._recorder.pack(key, tensor)
        move = self._plan.moves.get(number) if self._plan else None
        if fresh and (move or self._plan is None):
            block.page_out()
            if move is None:
                self._waiting.append(block)
            elif move.release == len(self._keys) - 1:
                block.release()
        elif fresh:
            assert block.flat is not None
            block.offer = self.device.offer(block.flat)
        self._leave()
        return block

    def _unpack(self, block: Block) -> None:
        block.used = True
        self._enter(None, block.number)
        if self._recorder is not None:
            self._recorder.unpack(block.number)
        if block.flat is None and self._plan is not None:
            move = self._plan.moves.get(block.number)
            self.missed += move is None or move.fetch < len(self._keys) - 1
        block.ready()
        self._leave()

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
            self._release_unheld(self._recorder)
        if self._plan is not None and event < len(self._actions[0]):
            for gone in self._actions[0][event]:
                block = self._numbered.get(gone)
                if block is not None and not block.used and block.room is not None:
                    block.release()

    def _release_unheld(self, recorder: Recorder) -> None:
        """While everything is swapped: gives up what the model itself does not hold any more.

        Not before: a block then dies between two events, and the memory of an interval is that of
        the same blocks from its beginning to its end.
        """
        waiting, self._waiting = self._waiting, []
        for block in waiting:
            if block.used or block.flat is None:
                continue
            if torch._C._storage_Use_Count(block.original.cdata) > _SOLE:
                self._waiting.append(block)
            else:
                block.release()
                recorder.left(block.number)

    def _leave(self) -> None:
        """The event has been served: fetch what the plan says."""
        event = len(self._keys) - 1
        if self._plan is not None and event < len(self._actions[1]):
            for wanted in self._actions[1][event]:
                block = self._numbered.get(wanted)
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
        self._recorder = Recorder(self.device)
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
            self._recorder = Recorder(self.device)
        return True

    def _send_all(self) -> None:
        """Sends out what a plan has kept until now; it is given up once the model lets go of it."""
        for block in list(self._numbered.values()):
            if block.flat is not None and not block.used:
                if block.room is None:
                    block.page_out()
                self._waiting.append(block)

    def _catch_up(self, event: int) -> None:
        """Sends out what another plan has kept until now and this one does not."""
        assert self._plan is not None
        for number, block in self._numbered.items():
            move = self._plan.moves.get(number)
            if move is not None and block.flat is not None and not block.used:
                if block.room is None:
                    block.page_out()
                if move.release <= event:
                    block.release()

    def _begins(self, trace: Trace) -> bool:
        """Whether this iteration has gone as `trace` does, so far."""
        events = len(self._keys)
        return trace.keys[:events] == self._keys and trace.order[:events] == self._order

    # -- blocks

    def came_back(self, block: Block) -> None:
        """A block is in memory again, in another storage."""
        assert block.flat is not None
        self._blocks[block.flat.untyped_storage()._cdata] = block
        if self._recorder is not None and block.iteration == self.iteration:
            self._recorder.returned(block.number, block.flat)

    def freed(self, block: Block) -> None:
        """Nothing needs the block any more."""
        if self._recorder is not None and block.iteration == self.iteration:
            self._recorder.freed(block.number)

    @property
    def learning(self) -> bool:
        """Whether everything is swapped that can be: no plan keeps anything."""
        return self._plan is None

    def too_much(self, error: torch.OutOfMemoryError) -> NoPlanError:
        """What running out of memory means while everything is swapped: there is no plan."""
        short = self.device.short_of(error)
        return NoPlanError(
            f"no plan keeps this program within {self.limit} bytes ({size_text(self.limit)}): with "
            f"every saved tensor gone that can go it was still at least {short} bytes "
            f"({size_text(short)}) short; raise the limit, make the batch smaller, checkpoint the "
            "largest layers, or page the optimizer's state: lms.page_optimizer(...)",
            short,
        )

    def reclaim(self) -> int:
        """Gives up, at once, all memory of saved tensors that nothing but backward needs.

        Returns:
            Bytes given up.
        """
        freed = 0
        with self._lock, self.device.aside(), torch.no_grad():
            for block in list(self._numbered.values()):
                if block.flat is not None and not block.used:
                    if block.room is None:
                        block.page_out()
                    block.release()
                    freed += block.nbytes * block.original.expired()
        return freed


def _is_fake(tensor: torch.Tensor) -> bool:
    """Whether it is a tensor without numbers, as planning uses them."""
    from torch._subclasses.fake_tensor import FakeTensor

    return type(tensor) is FakeTensor
