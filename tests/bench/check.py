"""One figure beside what the bar demands of it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """A figure that was measured, and the demand.

    Attributes:
        row: the bar's row that demands it.
        where: what was measured, in words.
        what: what the figure says, with {} in its place.
        reached: the figure; NaN falls short.
        wanted: the limit.
        at_most: the figure must not be above the limit; else, not below.
        failure: why there is no figure, which falls short, or "".
        reachable: the figure of a library at the physical limit, where the same run tells.
        reason: how it tells.
    """

    row: str
    where: str
    what: str = ""
    reached: float = math.nan
    wanted: float = math.nan
    at_most: bool = False
    failure: str = ""
    reachable: float | None = None
    reason: str = ""

    @property
    def met(self) -> bool:
        """It is as demanded."""
        if self.failure:
            return False
        return self.reached <= self.wanted if self.at_most else self.reached >= self.wanted

    @property
    def share(self) -> float:
        """How far it is met: below 1, it falls short; to compare checks of one demand."""
        if self.failure or math.isnan(self.reached):
            return -math.inf
        if self.at_most:
            return self.wanted / self.reached if self.reached > 0 else math.inf
        return self.reached / self.wanted

    @property
    def unreachable(self) -> str:
        """Why no library could do it, by the same run's figures; "" where one could."""
        if self.failure or self.met or self.reachable is None or self.reachable >= self.wanted:
            return ""
        return f"unreachable: {self.reason}"

    @property
    def figure(self) -> str:
        """What was reached, in digits."""
        return str(self.reached) if isinstance(self.reached, int) else f"{self.reached:.2f}"

    def demand(self) -> str:
        """What is demanded."""
        return f"at {'most' if self.at_most else 'least'} {self.wanted:.3g}"

    def line(self) -> str:
        """The figure and the demand, or the failure."""
        said = self.failure or f"{self.what.format(self.figure)}; {self.demand()}"
        return f"{self.where}: {said}"


def missed(checks: Iterable[Check]) -> list[str]:
    """A line for each that falls short; the same once."""
    return list(dict.fromkeys(check.line() for check in checks if not check.met))
