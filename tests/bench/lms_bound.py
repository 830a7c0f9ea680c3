"""A lower bound for the time of an iteration under a limit, by a linear program.

Each storage may stay, move, or be computed again in part, and bytes flow as a fluid: every plan of
LMS's is one point of the program, so none is faster than its optimum. docs/lms.md derives it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from lms.paging.device import TransferRates
from lms.planning.trace import Trace
from scipy.optimize import linprog
from scipy.sparse import csr_matrix

#: Bytes are counted in MiB and seconds in ms, so that the program's numbers are near one.
_BYTES, _SECONDS = float(1 << 20), 1e-3

#: A sum of variables: pairs of number and factor.
Sum = Sequence[tuple[int, float]]


def _if_any(variable: int | None) -> list[tuple[int, float]]:
    return [] if variable is None else [(variable, -1.0)]


@dataclass
class _Program:
    """A linear program with variables of at least zero: the rows of `sum <= bound`."""

    cost: list[float] = field(default_factory=list)
    most: list[float | None] = field(default_factory=list)
    rows: list[Sum] = field(default_factory=list)
    bounds: list[float] = field(default_factory=list)

    def variable(self, cost: float = 0.0, most: float | None = None) -> int:
        """A new variable's number."""
        self.cost.append(cost)
        self.most.append(most)
        return len(self.cost) - 1

    def at_most(self, terms: Iterable[tuple[int, float]], bound: float) -> None:
        """A row."""
        self.rows.append(list(terms))
        self.bounds.append(bound)

    def running(self, before: int | None, terms: Iterable[tuple[int, float]]) -> int:
        """A variable that is `before` and a sum."""
        now = self.variable()
        row = [(now, 1.0), *((n, -v) for n, v in terms), *_if_any(before)]
        self.at_most(row, 0)
        self.at_most([(number, -value) for number, value in row], 0)
        return now

    def engine(self, before: int | None, rate: float, time: float, more: Iterable[int]) -> int:
        """A variable for the bytes that are copied so far: `rate` in `time` and in some variables.

        Args:
            before: the variable for those until the event before.
        """
        now = self.variable()
        row = [(now, 1.0), *((number, -rate) for number in more)]
        self.at_most(row + _if_any(before), rate * time)
        return now

    def minimum(self) -> float | None:
        """The least cost; None if no values meet all rows."""
        entries = [(r, c, v) for r, row in enumerate(self.rows) for c, v in row]
        rows, columns, values = zip(*entries, strict=True)
        shape = len(self.rows), len(self.cost)
        solved = linprog(
            self.cost,
            A_ub=csr_matrix((values, (rows, columns)), shape=shape),
            b_ub=self.bounds,
            bounds=[(0, most) for most in self.most],
            method="highs",
        )
        if solved.status == 2:
            return None
        if solved.status != 0:
            raise ValueError(f"the linear program has no solution: {solved.message}")
        return float(solved.fun)


@dataclass
class _Flows:
    """The bytes that can begin to leave, must be back, or can be made again, by event."""

    leaving: dict[int, list[tuple[int, float]]]
    needed: dict[int, list[tuple[int, float]]]
    made: dict[int, list[tuple[int, float]]]


def lower_bound(
    trace: Trace, limit: int, rates: TransferRates, smallest: int, *, recompute: bool
) -> float | None:
    """Seconds that an iteration like `trace` takes at least; None if the limit is too low.

    Args:
        limit: bytes on the device.
        smallest: blocks of fewer bytes stay.
        recompute: whether single operations may be computed again; else storages only move.
    """
    program, events = _Program(), len(trace.order)
    free = [
        number
        for number, block in enumerate(trace.blocks)
        if block.movable and block.nbytes >= smallest and block.last_held + 1 < block.used
    ]
    again = set(free) & trace.recomputations.keys() if recompute else set[int]()
    moved = {number: program.variable(most=1) for number in free}
    made = {
        number: program.variable(trace.recomputations[number].seconds / _SECONDS, 1)
        for number in again
    }
    for number in again:
        program.at_most([(moved[number], 1), (made[number], 1)], 1)
    curve = _add_memory(program, trace, moved, made, limit)
    _add_copies(program, trace, rates, _flows(trace, moved, made), curve)
    least = program.minimum()
    return None if least is None else sum(trace.seconds[:events]) + least * _SECONDS


def _flows(trace: Trace, moved: dict[int, int], made: dict[int, int]) -> _Flows:
    flows = _Flows(defaultdict(list), defaultdict(list), defaultdict(list))
    for number, variable in moved.items():
        block = trace.blocks[number]
        if block.parameter < 0:
            flows.leaving[block.last_held + 1].append((variable, block.nbytes / _BYTES))
        if block.used < len(trace.order) and not block.unused:
            flows.needed[block.used].append((variable, block.nbytes / _BYTES))
    for number, event in _earliest(trace).items():
        if number in made:
            seconds = trace.recomputations[number].seconds / _SECONDS
            flows.made[event].append((made[number], seconds))
    return flows


def _earliest(trace: Trace) -> dict[int, int]:
    """By block the first event at which it, or one that is made from it, is used."""
    found = {number: trace.blocks[number].used for number in trace.recomputations}
    for number in sorted(found, key=lambda n: -trace.recomputations[n].position):
        for parent in trace.recomputations[number].parents:
            if parent in found:
                found[parent] = min(found[parent], found[number])
    return found


def _add_memory(
    program: _Program, trace: Trace, moved: dict[int, int], made: dict[int, int], limit: int
) -> list[tuple[int, int, int]]:
    """The limit at each event; returns by event the variables of waiting bytes and of stalls.

    The bytes at an event are those of the trace, less the shares that are away, plus those that
    have not left yet or are back early, plus those that others are made from.
    """
    resident = (trace.resident() - limit) / _BYTES
    change: dict[int, list[tuple[int, float]]] = defaultdict(list)
    for number in moved:
        block = trace.blocks[number]
        for variable in [moved[number], *([made[number]] if number in made else [])]:
            change[block.last_held + 1].append((variable, block.nbytes / _BYTES))
            change[block.used].append((variable, -block.nbytes / _BYTES))
    beside = _add_parents(program, trace, moved, made)
    found, away = [], None
    for event in range(len(trace.order)):
        now, waiting, early = program.variable(), program.variable(), program.variable()
        rows = [(now, 1.0), *((n, -v) for n, v in change[event])]
        program.at_most(rows + _if_any(away), 0)
        away = now  # bytes that are away in this interval, at most
        terms = [(away, -1.0), (waiting, 1.0), (early, 1.0), *beside[event]]
        program.at_most(terms, -float(resident[event]))
        found.append((waiting, early, event))
    return found


def _add_parents(
    program: _Program, trace: Trace, moved: dict[int, int], made: dict[int, int]
) -> dict[int, list[tuple[int, float]]]:
    """By event the shares of blocks that are made there, before their use, for others."""
    beside: dict[int, list[tuple[int, float]]] = defaultdict(list)
    for number, variable in made.items():
        event = trace.blocks[number].used
        for parent in trace.recomputations[number].parents:
            block = trace.blocks[parent]
            if parent in made and event < block.used:
                both = program.variable()
                program.at_most([(variable, 1), (made[parent], 1), (both, -1)], 1)
                beside[event].append((both, block.nbytes / _BYTES))
    return beside


def _add_copies(
    program: _Program,
    trace: Trace,
    rates: TransferRates,
    flows: _Flows,
    memory: list[tuple[int, int, int]],
) -> None:
    """Each engine copies so many bytes in the time from event to event, stalls included."""
    out = back = spent = possible = leaving = needed = None
    seconds = np.array([0.0, *trace.seconds]) / _SECONDS
    host = [(variable, -nbytes) for variable, nbytes in _on_host(flows)]
    for waiting, early, event in memory:
        stall, again = program.variable(1), program.variable()
        time = float(seconds[event])
        out = program.engine(out, rates.d2h * _SECONDS / _BYTES, time, (stall, again))
        back = program.engine(back, rates.h2d * _SECONDS / _BYTES, time, (stall, again))
        leaving = program.running(leaving, flows.leaving.get(event, ()))
        needed = program.running(needed, flows.needed.get(event, ()))
        spent = program.running(spent, [(again, 1.0)])
        possible = program.running(possible, flows.made.get(event, ()))
        program.at_most([(leaving, 1.0), (out, -1.0), (waiting, -1.0)], 0)
        program.at_most([(out, 1.0), (leaving, -1.0)], 0)
        program.at_most([(needed, 1.0), (back, -1.0)], 0)
        program.at_most([(back, 1.0), (needed, -1.0), (early, -1.0)], 0)
        program.at_most([(back, 1.0), (out, -1.0), *host], 0)
        program.at_most([(spent, 1.0), (possible, -1.0)], 0)


def _on_host(flows: _Flows) -> list[tuple[int, float]]:
    """The bytes of parameters, which the host has from the beginning."""
    leaving = {variable for pairs in flows.leaving.values() for variable, _ in pairs}
    return [p for pairs in flows.needed.values() for p in pairs if p[0] not in leaving]
