"""ddlrun's knowledge of a job's ranks, and which of several failures was the first."""

import signal
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

TAIL_LINES = 12  # of each rank's output, repeated after a failure


@dataclass
class Rank:
    """The state of one rank, as far as it has been reported."""

    number: int
    host: str
    started: bool = False
    end: str | None = None  # "exit 3", "signal 9", "stopped 19", "abort", "host", "gone"
    ended_at: float = 0.0  # by our clock (time.monotonic)
    was_told: bool = False  # it had been asked to end before it did
    stopped_by: int = 0  # the signal that stopped it, while it is stopped
    stopped_at: float = 0.0
    aborted_at: float = 0.0  # when it has printed what MPI_Abort prints
    has_written: bool = False  # all of its output has come
    tail: deque[bytes] = field(default_factory=lambda: deque(maxlen=TAIL_LINES))

    def __str__(self) -> str:
        return f"rank {self.number} on {self.host}"

    @property
    def failed(self) -> bool:
        """It has ended, and not well."""
        return self.end not in (None, "exit 0")

    @property
    def is_over(self) -> bool:
        """It has ended, and so has its output, unless it is stopped or its host is lost."""
        ended = self.end or ""
        return bool(ended) and (self.has_written or ended.startswith(("stopped", "host")))

    @property
    def code(self) -> int:
        """The number that its end comes with."""
        return int((self.end or "").partition(" ")[2] or 0)

    def how(self) -> str:
        """The rank's end in words."""
        word = (self.end or "").partition(" ")[0]
        if self.aborted_at and word in ("abort", "exit"):
            return "called MPI_Abort"
        if word == "gone":
            return "has gone without a word"
        if word == "host":
            return "has gone with its host"
        if word == "signal":
            return f"was killed by {signal_name(self.code)}"
        if word == "stopped":
            return f"was stopped by {signal_name(self.code)}, did not go on, and was ended"
        return f"ended with exit code {self.code}"


class Clocks:
    """Brings the times that hosts tell onto our own clock, whatever theirs say.

    A report takes time to come: the quickest of a host's reports tells best how far its clock is.
    """

    def __init__(self) -> None:
        self._behind: dict[str, float] = {}

    def ours(self, host: str, theirs: float, now: float) -> float:
        """Our time of a report that a host gave at `theirs` and that has come at `now`."""
        self._behind[host] = min(now - theirs, self._behind.get(host, float("inf")))
        return theirs + self._behind[host]


def first_failure(failed: Sequence[Rank]) -> Rank | None:
    """The rank that took the others along, among ranks that failed at about the same time.

    A rank that somebody told to end was not the first. A rank that a signal killed did not choose
    to end: its peers notice, and end with an exit code of their own, or by abort(). They may do so
    before the killed rank's wrapper has been given the processor to tell of it.
    """

    def order(rank: Rank) -> tuple[bool, bool, float]:
        word = (rank.end or "").partition(" ")[0]
        is_killed = word == "signal" and rank.code != signal.SIGABRT
        chose_to_end = not (is_killed or rank.aborted_at or word in ("abort", "stopped"))
        return rank.was_told, chose_to_end, rank.ended_at

    return min(failed, key=order, default=None)


def name_ranks(ranks: Sequence[Rank]) -> str:
    """The ranks with their hosts; not more than fit on a screen."""
    more = f" and {len(ranks) - 16} more" if len(ranks) > 16 else ""
    return ", ".join(map(str, ranks[:16])) + more


def signal_name(number: int) -> str:
    """For example "SIGKILL (signal 9)"."""
    try:
        return f"{signal.Signals(number).name} (signal {number})"
    except ValueError:
        return f"signal {number}"
