"""Notices when mpiexec waits for ranks that nothing can start any more."""

from collections.abc import Sequence

from ddl.launch.awake import now
from ddl.launch.processes import children, is_dead
from ddl.launch.ranks import Rank

LOOK = 1.0  # seconds between looks
SOON = 0.2  # seconds until the words of lost hosts have come
MORE = 10.0  # seconds for other hosts' ranks to start, when one's cannot


class Starters:
    """The programs by which mpiexec reaches hosts: one for each, or one for all.

    Such a program ends when its host's ranks have ended. If it ends before, it was refused, and
    mpiexec would wait forever.

    Attributes:
        look_at: the moment (of awake.now) of the next look; None: nothing is in doubt.
    """

    def __init__(self, hosts: Sequence[str]) -> None:
        self.look_at: float | None = None
        self._hosts = set(hosts)
        self._listened = 0.0  # seconds in which nothing had come that was not read yet
        self._lost_at: float | None = None  # since when some are lost, of the time listened

    def begin(self) -> None:
        """mpiexec has been started."""
        self.look_at = now() + LOOK

    def listened(self, seconds: float) -> None:
        """For so long, all that mpiexec has said was read."""
        self._listened += seconds

    def hear(self) -> None:
        """mpiexec has said something of its own: one of its programs may have ended."""
        if self.look_at:
            self.look_at = now() + SOON

    def look(self, mpiexec: int, ranks: Sequence[Rank]) -> list[Rank]:
        """The ranks that cannot start any more; `mpiexec` is its process number."""
        waiting = [rank for rank in ranks if not rank.started and not rank.end]
        if not waiting:
            self.look_at = None
            return []
        programs = children(mpiexec)
        ended = sum(map(is_dead, programs))
        going = {rank.host for rank in ranks if not rank.is_over}
        hosts = len({rank.host for rank in waiting})
        lost = hosts if ended == len(programs) else ended - len(self._hosts - going)
        if not programs or lost <= 0:
            self._lost_at = None
            self.look_at = now() + LOOK
            return []
        if self._lost_at is None:
            self._lost_at = self._listened
        self.look_at = now() + SOON
        # Until all that others have said has come, or, so that we name the lost ones, all others.
        # While our output is read slowly, mpiexec may have words of ranks long after their ends.
        is_sure = self._listened >= self._lost_at + (SOON if lost >= hosts else MORE)
        return waiting if is_sure else []
