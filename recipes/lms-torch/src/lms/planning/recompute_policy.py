"""The layers that are computed again in backward, and the choice of more or fewer of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lms.paging.device import TransferRates
from lms.planning.plan import Plan
from lms.planning.recompute_costs import RecomputeCost, choose_layers, recompute_costs
from lms.planning.trace import LayerCall, Shape, Trace

#: Layers that are computed again: by number and the shape of their first tensor.
Choice = dict[tuple[int, Shape], RecomputeCost]


class RecomputableLayer:
    """A layer that may be computed again.

    Attributes:
        number: among all such layers.
        recomputed_shapes: shapes of its first tensor with which it is computed again in backward.
        excluded: the reason why it never is; empty if it may be.
    """

    def __init__(self, name: str) -> None:
        self.name, self.number = name, -1
        self.recomputed_shapes, self.excluded = set[Shape](), ""

    def detach(self) -> None:
        """LMS takes no part in it any more."""
        self.recomputed_shapes = set()


@dataclass
class _IterationKind:
    """Iterations of one kind: the layers' calls with their shapes, and the memory at the beginning.

    Attributes:
        seconds: predicted before the last choice.
        before: the choice before the last one.
        most: how many layers the next choice may have; fewer after each that was wrong.
    """

    calls: tuple[tuple[int, Shape], ...]
    base: int
    seconds: float
    before: Choice
    most: int


def _calls(trace: Trace) -> tuple[tuple[int, Shape], ...]:
    return tuple((call.layer, call.shape) for call in trace.calls)


class RecomputePolicy:
    """All layers that one engine may have computed again, and which are, by shape.

    The choice of one kind of iterations only adds to that of others with the same shapes. It is
    taken back, and one of half as many layers is tried, if an iteration turns out longer than
    before, or has no plan.

    Args:
        tolerance: bytes by which the memory under iterations of one kind may differ.

    Attributes:
        chosen: the layers that are computed again, with the prediction of their costs.
        changes: how often the choice has changed.
    """

    def __init__(self, tolerance: int) -> None:
        self.layers: dict[int, RecomputableLayer] = {}
        self.chosen: Choice = {}
        self.changes = 0
        self._tolerance = tolerance
        self._count = 0
        self._kinds: list[_IterationKind] = []
        self._last: _IterationKind | None = None  # the kind that the last choice was for
        self._next: Choice | None = None

    @property
    def pending(self) -> bool:
        """Whether another choice comes into effect with the next iteration."""
        return self._next is not None

    def add(self, layer: RecomputableLayer) -> int:
        """Takes a layer up; returns its number."""
        self.layers[self._count] = layer
        self._count += 1
        return self._count - 1

    def remove(self, layer: RecomputableLayer) -> None:
        """The layer is not computed again from now on."""
        layer.detach()
        del self.layers[layer.number]
        for chosen in (self.chosen, self._next or {}, *(kind.before for kind in self._kinds)):
            for key in [key for key in chosen if key[0] == layer.number]:
                del chosen[key]

    def detach(self) -> None:
        """LMS is off."""
        for layer in self.layers.values():
            layer.detach()

    def consider(
        self, trace: Trace, plan: Plan, limit: int, rates: TransferRates, smallest: int
    ) -> None:
        """Chooses more layers, once an iteration under the present choice is known.

        Only if that makes the iteration shorter.

        Args:
            plan: was made for `trace` by the three arguments that follow.
        """
        if not self.layers or self.pending:
            return
        kind = self._kind(trace)
        if kind is None:
            kind = _IterationKind(_calls(trace), trace.base, plan.seconds, {}, len(self.layers))
            self._kinds.append(kind)
        elif plan.seconds > kind.seconds:
            if kind is self._last:
                self.retreat()
            return
        if not kind.most:
            return
        shapes = {call.layer: call.shape for call in trace.calls}
        more = choose_layers(trace, plan, limit, rates, smallest, self._allowed(shapes), kind.most)
        if more:
            costs = recompute_costs(trace)
            kind.seconds, kind.before, kind.most = plan.seconds, self.chosen, len(more)
            added = {(number, shapes[number]): costs[number] for number in sorted(more)}
            self._last, self._next = kind, self.chosen | added

    def _kind(self, trace: Trace) -> _IterationKind | None:
        """The kind of an iteration, if it is known."""
        calls = _calls(trace)
        for kind in self._kinds:
            if kind.calls == calls and abs(kind.base - trace.base) <= self._tolerance:
                return kind
        return None

    def _allowed(self, shapes: dict[int, Shape]) -> list[int]:
        """The layers of an iteration that may be chosen beside those that are already."""
        return [
            number
            for number, layer in self.layers.items()
            if not layer.excluded
            and number in shapes
            and (number, shapes[number]) not in self.chosen
        ]

    def costs_of(self, calls: Iterable[LayerCall]) -> dict[int, RecomputeCost]:
        """The layers among some calls that are computed again, with their costs."""
        called = {(call.layer, call.shape) for call in calls}
        return {key[0]: cost for key, cost in self.chosen.items() if key in called}

    def retreat(self) -> bool:
        """Takes the last choice back; whether anything is, or will be, taken back."""
        if self.pending:
            return True
        if not self.chosen:
            return False
        kind, self._last = self._last, None
        self._next = kind.before if kind is not None else {}
        if kind is not None:
            kind.most //= 2
        return True

    def switch(self) -> bool:
        """Puts a choice into effect, between two iterations; whether there was one."""
        if self._next is None:
            return False
        self.chosen, self._next = self._next, None
        self.changes += 1
        for number, layer in self.layers.items():
            layer.recomputed_shapes = {shape for n, shape in self.chosen if n == number}
        return True
