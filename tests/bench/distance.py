"""How far apart two processors are, while others are measured.

A virtual machine's processors are put now on neighbouring cores, now on cores without a common
cache, for seconds each: what one sends the other then takes five times as long. Libraries that are
measured one after the other can only be compared by what each did in the same state.
"""

from __future__ import annotations

import shutil
import subprocess
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.environment import built
from bench.lab.peers.install import compile_worker

NEAR, FAR = 1.6, 3.0
"""Up to, and from so many times the least distance on."""
PURE = 0.9
"""The share of a batch's samples that must be so."""
MORE_TURNS = 2
"""For what was too seldom measured near: times the turns that were asked for."""


@dataclass(frozen=True)
class Batch:
    """Some calls in a row, by CLOCK_MONOTONIC, and the seconds that one of them took."""

    begin: float
    end: float
    call: float


@dataclass(frozen=True)
class Distances:
    """Samples in the order of `times`, both in seconds."""

    times: Sequence[float]
    seconds: Sequence[float]

    @cached_property
    def least(self) -> float:
        """That of the nearest state: as few as a hundredth of the samples may be of it."""
        return sorted(self.seconds)[len(self.seconds) // 100]

    def during(self, batch: Batch) -> Sequence[float]:
        """The samples while a batch ran, or else the one that came next."""
        first, end = bisect_left(self.times, batch.begin), bisect_right(self.times, batch.end)
        if first == len(self.times):
            first -= 1
        return self.seconds[first : max(end, first + 1)]

    def are_near(self, batch: Batch) -> bool:
        """The processors, while the batch ran."""
        return self._share(batch, lambda x: x <= NEAR * self.least) >= PURE

    def are_far(self, batch: Batch) -> bool:
        """The same."""
        return self._share(batch, lambda x: x >= FAR * self.least) >= PURE

    def split(self, batches: Sequence[Batch]) -> tuple[list[float], list[float]]:
        """The calls' seconds of the batches with near processors, and of those with far ones."""
        near = [batch.call for batch in batches if self.are_near(batch)]
        return near, [batch.call for batch in batches if self.are_far(batch)]

    def _share(self, batch: Batch, has: Callable[[float], bool]) -> float:
        samples = self.during(batch)
        return sum(map(has, samples)) / len(samples)


class Watch:
    """A running `workers/distance.c`."""

    def __init__(self, log: Path) -> None:
        """`log` is what it writes."""
        self._log = log

    def so_far(self) -> Distances:
        """What it has found.

        Raises:
            RuntimeError: nothing yet.
        """
        lines = [line.split() for line in self._log.read_text().splitlines()[:-1]]
        if not lines:
            raise RuntimeError("the distance of the processors was not measured; are there two?")
        return Distances([float(t) for t, _ in lines], [float(s) for _, s in lines])


@contextmanager
def watch() -> Iterator[Watch]:
    """Has the worker run, compiled by this machine's compiler.

    Raises:
        Unavailable: there is no compiler.
    """
    compiler = Path(shutil.which("cc") or "cc")
    worker = compile_worker("distance.c", built(), compiler, "-pthread")
    with TemporaryDirectory() as folder:
        log = Path(folder) / "distances"
        with log.open("w") as out, subprocess.Popen([worker], stdout=out) as process:
            try:
                yield Watch(log)
            finally:
                process.kill()
