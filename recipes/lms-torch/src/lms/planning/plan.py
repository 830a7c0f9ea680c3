"""A plan: the blocks that leave, when they leave and return, and the time that this takes."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Move:
    """One block's way out and back.

    Attributes:
        release: the event at which its memory on the device is given up; -1 before the first.
        fetch: the event at which the copy back begins; its first use if there is no space before.
    """

    block: int
    nbytes: int
    release: int
    fetch: int


@dataclass
class Plan:
    """All that leaves in an iteration, and when.

    Attributes:
        moves: by the number of the block; one without a move stays.
        again: blocks that are computed again instead, by the operations that made them;
            `again_bytes` and `again_seconds` that is in all.
        seconds: predicted for the iteration.
        exposed: predicted seconds in which computing waits for copies.
        hidden: predicted seconds of copies that run beside computing.
        peak: predicted bytes at the highest; at most `limit`.
        curve: predicted bytes in each interval.
    """

    limit: int
    moves: dict[int, Move] = field(default_factory=dict)
    again: frozenset[int] = frozenset()
    again_bytes: int = 0
    again_seconds: float = 0.0
    seconds: float = 0.0
    exposed: float = 0.0
    hidden: float = 0.0
    peak: int = 0
    curve: list[int] = field(default_factory=list)

    @property
    def moved(self) -> int:
        """Bytes that leave in one iteration."""
        return sum(move.nbytes for move in self.moves.values())

    def by_event(self, events: int) -> tuple[list[list[int]], list[list[int]]]:
        """For each event the blocks to release and those to fetch, each in the planned order."""
        release: list[list[int]] = [[] for _ in range(events)]
        fetch: list[list[int]] = [[] for _ in range(events)]
        for move in self.moves.values():
            if 0 <= move.release < events:
                release[move.release].append(move.block)
            if move.fetch < events:
                fetch[move.fetch].append(move.block)
        return release, fetch


def best_share(forward: float, backward: float, leaving: float, rate: float) -> float:
    """R(M): the throughput relative to in-core that no scheme of copying can pass.

    Args:
        forward: seconds of computing; `backward` likewise.
        leaving: bytes that must leave and come back.
        rate: bytes per second in one direction.
    """
    copying = leaving / rate
    return (forward + backward) / (max(forward, copying) + max(backward, copying))
