"""The report: what is swapped, what it costs, and what was measured."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Self

from lms.engine import Engine
from lms.errors import LMSError
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
        demand: what the iteration needs when nothing leaves.
        predicted_peak: in the plan; at most `limit`.
        saved: all that is saved for backward; `moved` what of it leaves.
        paged: parameters that leave; `fetched` their bytes that come back for forward and backward.
        layers: that may be computed again (`lms.recompute`); `again` those that are, `again_bytes`
            what that frees, and `again_seconds` what it takes, as predicted.
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
        if engine.resting:
            engine.finish()
        if not engine.known:
            raise LMSError(
                "there is nothing to report: no iteration has been learned yet, or no tensor of "
                f"{size_text(engine.smallest)} or more was saved for backward"
            )
        trace, plan = engine.known[0]
        calls, chosen = {(call.layer, call.shape) for call in trace.calls}, engine.layers.chosen
        again = {key[0]: cost for key, cost in chosen.items() if key in calls}
        fetched = [m for m in plan.moves.values() if trace.blocks[m.block].weight >= 0]
        saved = [block for block in trace.blocks if block.weight < 0]
        moves = {n: move for n, move in plan.moves.items() if trace.blocks[n].weight < 0}
        first = {key.block: key for key in reversed(trace.keys) if key is not None}
        return cls(
            limit=engine.limit,
            demand=trace.demand(),
            base=trace.base,
            predicted_peak=plan.peak,
            saved=sum(block.nbytes for block in saved),
            moved=sum(move.nbytes for move in moves.values()),
            blocks=len(saved),
            paged=len({trace.blocks[move.block].weight for move in fetched}),
            fetched=sum(m.nbytes for m in fetched if m.fetch < len(trace.order)),
            layers=len(engine.layers.all),
            again=tuple(engine.layers.all[number].name for number in again),
            again_bytes=sum(cost.nbytes for cost in again.values()),
            again_seconds=sum(cost.seconds for cost in again.values()),
            computing=sum(trace.seconds),
            hidden=plan.hidden,
            exposed=plan.exposed,
            predicted=plan.seconds,
            measured=engine.measured,
            learned=engine.learned,
            missed=engine.missed,
            swapped=tuple(
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
                for number, move in moves.items()
            ),
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
        return "\n".join(
            (
                f"limit           {size_text(self.limit)}; in-core demand {size_text(self.demand)}",
                f"saved tensors   {self.blocks} storages, {size_text(self.saved)}",
                f"swapped         {len(self.swapped)} storages, {size_text(self.moved)} "
                f"({share:.0%}), each way once in an iteration",
                f"parameters      {self.paged} paged, {size_text(self.fetched)} fetched for use in "
                "an iteration",
                *([again] if self.layers else []),
                f"copies          {self.hidden * 1e3:.4g} ms hidden, "
                f"{self.exposed * 1e3:.4g} ms exposed",
                f"step            {self.computing * 1e3:.4g} ms of computing, "
                f"{self.predicted * 1e3:.4g} ms predicted, {self.measured * 1e3:.4g} ms measured",
                f"peak            {size_text(self.predicted_peak)} predicted",
                f"learned         {self.learned} iterations; {self.missed} copies not foreseen",
            )
        )
