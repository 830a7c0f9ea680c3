"""The plans of the iterations that are known."""

from __future__ import annotations

from lms.planning.plan import Plan
from lms.planning.trace import PackKey, Trace, is_same

#: Plans that are kept; the one that was used least recently goes first.
_MOST = 32


class PlanCache:
    """Traces of iterations with their plans, the last used first.

    Args:
        tolerance: bytes by which the memory under iterations of one kind may differ.
        limit: bytes on the device.

    Attributes:
        record_next: whether the next iteration is to be recorded, whatever is known.
    """

    def __init__(self, tolerance: int, limit: int) -> None:
        self.entries: list[tuple[Trace, Plan]] = []
        self.record_next = False
        self._tolerance, self._limit = tolerance, limit

    def add(self, trace: Trace, plan: Plan) -> None:
        """Keeps a plan, in the place of the one for such an iteration."""
        kept = [entry for entry in self.entries if not self._is_alike(entry[0], trace)]
        self.entries = [(trace, plan), *kept[: _MOST - 1]]

    def find(
        self, keys: list[PackKey | None], order: list[int], base: int, earlier: bool
    ) -> tuple[Trace, Plan] | None:
        """The plan that fits an iteration so far, made for as much memory.

        Args:
            keys: of its events, as in `Trace`; `order` likewise.
            base: bytes in use when it began.
            earlier: whether there were optimizers' steps before it.
        """
        # Gradients or an optimizer's state that were not there then take memory that the plan
        # counts on; where there were more, it is good enough. The bytes alone do not tell: the
        # program may have let go of as many as the state takes that the first steps have made.
        events = len(keys)
        fitting = [
            (trace.base - base, index)
            for index, (trace, _) in enumerate(self.entries)
            if len(trace.keys) >= events
            and trace.earlier == earlier
            and -self._tolerance <= trace.base - base <= self._limit // 8
            and trace.keys[:events] == keys
            and trace.order[:events] == order
        ]
        if not fitting:
            return None
        self.entries.insert(0, self.entries.pop(min(fitting)[1]))
        return self.entries[0]

    def forget(self) -> None:
        """Forgets all plans, as other layers are computed again from now on."""
        self.entries = []

    def reset(self) -> None:
        """Forgets all plans, and that an iteration is to be recorded."""
        self.entries, self.record_next = [], False

    def _is_alike(self, first: Trace, second: Trace) -> bool:
        alike = first.earlier == second.earlier and is_same(first, second)
        return alike and abs(first.base - second.base) <= self._tolerance
