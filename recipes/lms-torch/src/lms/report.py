"""The report: the tensors that are swapped, the costs of that, and measurements."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Self

from lms.engine import Engine
from lms.errors import LMSError
from lms.planning.plan import Plan
from lms.planning.trace import Trace
from lms.sizes import size_text


@dataclass(frozen=True)
class Swapped:
    """One storage that leaves: its bytes, and the events of its first pack, release, fetch, use."""

    block: int
    nbytes: int
    shape: tuple[int, ...]
    dtype: str
    packed: int
    release: int
    fetch: int
    used: int


@dataclass(frozen=True)
class Report:
    """The plan of the iteration that was followed last. Sizes in bytes, times in seconds.

    Attributes:
        demand: bytes that the iteration needs when nothing leaves.
        predicted_peak: in the plan; at most `limit`.
        saved: all that is saved for backward; `moved` the part of it that leaves.
        paged: parameters that leave; `fetched` their bytes that come back for forward and backward.
        layers: that may be computed again (`lms.recompute`); `again` those that are,
            `again_bytes` that this frees, and `again_seconds` that it takes, as predicted.
        operations: storages that single operations make again (`recompute_operations`);
            `operations_bytes` that this frees, and `operations_seconds` that it takes.
        computing: without any copies.
        hidden: of copies that run beside computing; `exposed` that computing waits for.
        measured: from the last iteration's first pack to the end of it.
        learned: iterations that were recorded; `missed` copies back that were not foreseen.
    """

    limit: int
    demand: int
    base: int
    predicted_peak: int
    saved: int
    moved: int
    blocks: int
    paged: int
    fetched: int
    layers: int
    again: tuple[str, ...]
    again_bytes: int
    again_seconds: float
    operations: int
    operations_bytes: int
    operations_seconds: float
    computing: float
    hidden: float
    exposed: float
    predicted: float
    measured: float
    learned: int
    missed: int
    swapped: tuple[Swapped, ...]
    curve_before: tuple[int, ...]
    curve: tuple[int, ...]

    @classmethod
    def of(cls, engine: Engine) -> Self:
        """The report on an engine.

        Raises:
            LMSError: it has not learned an iteration.
        """
        if engine.iteration.at_rest:
            engine.finish()
        if not engine.plans.entries:
            raise LMSError(
                "there is nothing to report: no iteration has been learned yet, or no tensor of "
                f"{size_text(engine.smallest)} or more was saved for backward"
            )
        trace, plan = engine.plans.entries[0]
        costs, layers = engine.layers.costs_of(trace.calls), engine.layers.layers
        fetched = [m for m in plan.moves.values() if trace.blocks[m.block].parameter >= 0]
        saved = [block for block in trace.blocks if block.parameter < 0]
        swapped = _swapped(trace, plan)
        return cls(
            limit=engine.limit,
            demand=trace.demand(),
            base=trace.base,
            predicted_peak=plan.peak,
            saved=sum(block.nbytes for block in saved),
            moved=sum(move.nbytes for move in swapped),
            blocks=len(saved),
            paged=len({trace.blocks[move.block].parameter for move in fetched}),
            fetched=sum(m.nbytes for m in fetched if m.fetch < len(trace.order)),
            layers=len(layers),
            again=tuple(layers[number].name for number in costs),
            again_bytes=sum(cost.nbytes for cost in costs.values()),
            again_seconds=sum(cost.seconds for cost in costs.values()),
            operations=len(plan.again),
            operations_bytes=plan.again_bytes,
            operations_seconds=plan.again_seconds,
            computing=sum(trace.seconds),
            hidden=plan.hidden,
            exposed=plan.exposed,
            predicted=plan.seconds,
            measured=engine.measured,
            learned=engine.learned,
            missed=engine.missed,
            swapped=swapped,
            curve_before=tuple(trace.resident().tolist()),
            curve=tuple(plan.curve),
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers, texts and lists."""
        return asdict(self)

    def as_json(self) -> str:
        """All of it as JSON."""
        return json.dumps(self.as_dict(), indent=2)

    def __str__(self) -> str:
        share = self.moved / self.saved if self.saved else 0.0
        again = (
            f"computed again  {len(self.again)} of {self.layers} layers, "
            f"{size_text(self.again_bytes)}, {self.again_seconds * 1e3:.4g} ms"
        )
        operations = (
            f"repeated        {self.operations} storages by single operations, "
            f"{size_text(self.operations_bytes)}, {self.operations_seconds * 1e3:.4g} ms"
        )
        return "\n".join(
            (
                f"limit           {size_text(self.limit)}; in-core demand {size_text(self.demand)}",
                f"saved tensors   {self.blocks} storages, {size_text(self.saved)}",
                f"swapped         {len(self.swapped)} storages, {size_text(self.moved)} "
                f"({share:.0%}), each way once in an iteration",
                f"parameters      {self.paged} paged, {size_text(self.fetched)} fetched for use in "
                "an iteration",
                *([again] if self.layers else []),
                *([operations] if self.operations else []),
                f"copies          {self.hidden * 1e3:.4g} ms hidden, "
                f"{self.exposed * 1e3:.4g} ms exposed",
                f"step            {self.computing * 1e3:.4g} ms of computing, "
                f"{self.predicted * 1e3:.4g} ms predicted, {self.measured * 1e3:.4g} ms measured",
                f"peak            {size_text(self.predicted_peak)} predicted",
                f"learned         {self.learned} iterations; {self.missed} copies not foreseen",
            )
        )


def _swapped(trace: Trace, plan: Plan) -> tuple[Swapped, ...]:
    """The storages of saved tensors that leave, in the plan's order."""
    first = {key.block: key for key in reversed(trace.keys) if key is not None}
    return tuple(
        Swapped(
            number,
            move.nbytes,
            first[number].shape,
            first[number].dtype,
            trace.blocks[number].packed,
            move.release,
            move.fetch,
            trace.blocks[number].used,
        )
        for number, move in plan.moves.items()
        if trace.blocks[number].parameter < 0
    )
