"""The answer to "does my model fit": in-core and under LMS, without a GPU.

print(lms.answer.does_it_fit(make_step, 8, gpu_named("H100")))
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from lms.devices.gpus import Gpu
from lms.dry_run import Step, plan
from lms.errors import NoPlanError
from lms.report import Report
from lms.sizes import size_text

#: More memory than any device has: in-core demand is measured in it.
_UNLIMITED = 1 << 60
#: The share of in-core's speed at which no other way is looked for.
_GOOD = 0.97
#: The largest batch is found to this share of it.
_PRECISION = 1 / 16

#: Makes a step that trains on so many samples; with True, its state and parameters are paged.
StepMaker = Callable[[int, bool], Step]


@dataclass(frozen=True)
class Way:
    """One way to train under the limit.

    Attributes:
        share: of in-core's speed; 0.0 where there is no plan.
        report: None where there is no plan; `refusal` says why then.
    """

    name: str
    share: float
    report: Report | None = None
    refusal: str = ""

    def __str__(self) -> str:
        if self.report is None:
            return f"{self.name}: does not fit"
        again = self.report.operations_bytes + self.report.again_bytes
        parts = [f"{self.name}: fits, {self.share:.0%} of in-core's speed"]
        parts.append(f"{size_text(self.report.moved)} of saved tensors move")
        if again:
            parts.append(f"{size_text(again)} are computed again")
        if self.report.paged:
            parts.append(f"{self.report.paged} parameters are paged")
        return ", ".join(parts)


@dataclass(frozen=True)
class Answer:
    """Whether a model fits.

    Attributes:
        demand: bytes in-core; `limit` those that there are.
        ways: those that were tried, in order; empty if it fits in-core.
        largest: by way the largest batch, if it was asked for.
    """

    gpu: str
    batch: int
    limit: int
    demand: int
    in_core: Report
    ways: tuple[Way, ...]
    largest: dict[str, int] = field(default_factory=dict)

    @property
    def best(self) -> Report | None:
        """The report of the fastest way; None if there is none."""
        fits = [way for way in self.ways if way.report is not None]
        if not self.ways:
            return self.in_core
        return max(fits, key=lambda way: way.share).report if fits else None

    def as_json(self) -> str:
        """All of it as JSON."""
        ways = [
            {"name": way.name, "share": way.share, "refusal": way.refusal}
            | {"report": way.report.as_dict() if way.report else None}
            for way in self.ways
        ]
        found: dict[str, Any] = {"gpu": self.gpu, "batch": self.batch, "limit": self.limit}
        found |= {"demand": self.demand, "fits": self.demand <= self.limit, "ways": ways}
        return json.dumps(found | {"largest": self.largest}, indent=2)

    def __str__(self) -> str:
        fits = "fits" if self.demand <= self.limit else "does not fit"
        lines = [
            f"batch {self.batch} on {self.gpu}, {size_text(self.limit)} for the program",
            f"in-core: needs {size_text(self.demand)}, {fits}, "
            f"{self.in_core.measured * 1e3:.4g} ms a step",
            *map(str, self.ways),
        ]
        if self.ways and self.best is None:
            lines.append(self.ways[-1].refusal)
        lines += [f"largest batch, {name}: {batch}" for name, batch in self.largest.items()]
        return "\n".join(lines)


#: The ways to train under a limit, as tried: name, operations repeated, state and parameters paged.
_WAYS = (
    ("LMS", False, False),
    ("LMS, operations repeated", True, False),
    ("LMS, operations repeated, state and parameters paged", True, True),
)


def does_it_fit(
    make_step: StepMaker, batch: int, gpu: Gpu, limit: int, *, can_page: bool, largest: bool = False
) -> Answer:
    """The answer.

    Args:
        limit: bytes for the program.
        can_page: whether `make_step` can have state and parameters paged.
        largest: whether to look for the largest batch too.
    """
    in_core = _planned(make_step, batch, gpu, _UNLIMITED, False, False)
    ways = list[Way]()
    if in_core.demand > limit:
        for name, repeat, page in _WAYS[: None if can_page else 2]:
            if page and any(way.report for way in ways):
                break
            ways.append(_way(name, make_step, batch, gpu, limit, repeat, page, in_core.measured))
            if ways[-1].share >= _GOOD:
                break
    found = dict[str, int]()
    if largest:

        def fits_in_core(size: int) -> bool:
            return _planned(make_step, size, gpu, _UNLIMITED, False, False).demand <= limit

        def fits(size: int) -> bool:
            repeat, page = (True, True) if can_page else (True, False)
            return bool(_way("", make_step, size, gpu, limit, repeat, page, 0.0).report)

        found["in-core"] = largest_batch(fits_in_core, batch)
        found[_WAYS[2 if can_page else 1][0]] = largest_batch(fits, max(batch, found["in-core"]))
    return Answer(gpu.name, batch, limit, in_core.demand, in_core, tuple(ways), found)


def _planned(
    make_step: StepMaker, batch: int, gpu: Gpu, limit: int, repeat: bool, page: bool
) -> Report:
    return plan(lambda: make_step(batch, page), limit, speed=gpu.speed, recompute_operations=repeat)


def _way(
    name: str,
    make_step: StepMaker,
    batch: int,
    gpu: Gpu,
    limit: int,
    repeat: bool,
    page: bool,
    in_core: float,
) -> Way:
    """One way, beside the seconds of a step in-core."""
    try:
        report = _planned(make_step, batch, gpu, limit, repeat, page)
    except NoPlanError as error:
        return Way(name, 0.0, None, str(error))
    return Way(name, min(1.0, in_core / report.measured), report)


def largest_batch(fits: Callable[[int], bool], start: int) -> int:
    """The largest batch that fits, to a sixteenth of it; 0 if not one sample does."""
    low, high = 0, start
    while fits(high):
        low, high = high, high * 2
    while high - low > max(1, int(low * _PRECISION)):
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
