"""How a job has ended, and the last words of ddlrun about it."""

import signal
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum, auto

from ddl.launch.ranks import Rank, first_failure, name_ranks, signal_name
from ddl.launch.sink import write_all

EXIT_TIMEOUT = 124
EXIT_OUTPUT = 1


class Stop(Enum):
    """Why ddlrun has ended a job, where nobody has sent it a signal."""

    TIMEOUT = auto()
    FAILURE = auto()  # of a rank
    CHIEF = auto()  # it has ended well
    HOST = auto()  # one is lost
    START = auto()  # nothing could be started
    FEW = auto()  # of the ranks are left, with -keep_going
    OVER = auto()  # all ranks have ended but those that are stopped


@dataclass
class Outcome:
    """What a run has learnt of its job's end.

    Attributes:
        ranks: all of the job, by number.
        timeout: ddlrun's own, in seconds.
        stop_reason: why ddlrun has ended the job: a Stop, or the signal that it got.
        running_at_timeout: the ranks that had not ended when the timeout came.
        never_started: the ranks that nothing could start, for Stop.HOST and Stop.START.
        failures: ranks, in the order in which ddlrun learnt of them, before it asked any to end.
        own_words: the last lines of mpiexec, and of the programs that it calls.
        min_ranks: how many have to be left for the job to go on; None: it ends with a failure.
        lost: ranks that the job goes on without, in order.
        lost_output: why output of the ranks could not be written; "" if all was.
    """

    ranks: list[Rank]
    timeout: float | None
    stop_reason: Stop | signal.Signals | None = None
    running_at_timeout: list[Rank] = field(default_factory=list)
    never_started: list[Rank] = field(default_factory=list)
    failures: list[Rank] = field(default_factory=list)
    own_words: deque[bytes] = field(default_factory=lambda: deque(maxlen=40))
    min_ranks: int | None = None
    lost: list[Rank] = field(default_factory=list)
    lost_output: str = ""

    def lose(self, rank: Rank, seconds: float) -> bool:
        """Says that the job has lost a rank, after so many seconds; whether enough are left."""
        assert self.min_ranks
        self.lost.append(rank)
        left = sum(not other.failed for other in self.ranks)
        is_enough = left >= self.min_ranks
        ranks = {0: "no rank is", 1: "1 rank is"}.get(left, f"{left} ranks are")
        bound = f", and -min says {self.min_ranks}" if self.min_ranks > 1 else ""
        then = "the job goes on" if is_enough else "ending the job"
        say(
            f"lost {rank}, which {rank.how()} after {seconds:.1f} s; "
            f"{ranks} left{'' if is_enough else bound}: {then}."
        )
        return is_enough

    def conclude(self, status: int, seconds: float) -> int:
        """Prints the last words, if there is anything to say; the exit status.

        `status` is mpiexec's, and `seconds` how long the job has run.
        """
        if self.stop_reason is Stop.TIMEOUT:
            return self._timeout()
        if self.stop_reason is Stop.CHIEF:
            return self._well()
        if self.stop_reason in (Stop.HOST, Stop.START):
            return self._no_start()
        if isinstance(self.stop_reason, signal.Signals):
            say(f"{signal_name(self.stop_reason)}: all ranks were ended after {seconds:.1f} s")
            return 128 + self.stop_reason
        if self.min_ranks is not None:
            return self._went_on(status, seconds)
        for rank in self.ranks:
            if rank.aborted_at and rank.end is None:  # mpiexec has ended its wrapper, too
                rank.end, rank.ended_at = "abort", rank.aborted_at
                self.failures.append(rank)
        lost = [rank for rank in self.ranks if rank.end is None]
        first = first_failure(self.failures)
        if first and not (lost and first.was_told):  # else mpiexec told it to end: it lost another
            return self._failure(first, status, seconds)
        if not status and not lost:
            return self._well()
        self._say_own_words()
        if lost:
            say(f"lost {name_ranks(lost)}: gone without a word (MPI_Abort, or killed?)")
            if len(lost) == 1:  # of several, mpiexec may have ended all but one
                print_tail(lost[0])
        else:
            say(f"mpiexec ended with {status}, though every rank ended well")
        return status if 0 < status < 256 else 1

    def _say_own_words(self) -> None:
        for line in self.own_words:
            say(f"  mpiexec: {line.decode(errors='replace')}")

    def _went_on(self, status: int, seconds: float) -> int:
        """The end of a job that could lose ranks."""
        if self.stop_reason is not Stop.FEW:
            # Somebody has killed its wrapper, its host is lost, or one has called MPI_Abort.
            missing = [rank for rank in self.ranks if rank.end is None]
            for rank in sorted(missing, key=lambda rank: not rank.aborted_at):
                rank.end = "abort" if rank.aborted_at else "gone"
                if not self.lose(rank, seconds):
                    self.stop_reason = Stop.FEW
                    self._say_own_words()
        if self.stop_reason is not Stop.FEW:
            return self._well()
        print_tail(self.lost[-1])
        return _code(self.lost[0], status)

    def _well(self) -> int:
        if self.lost_output:
            say(f"output of the ranks is lost: {self.lost_output}")
        return EXIT_OUTPUT if self.lost_output else 0

    def _timeout(self) -> int:
        silent = [rank for rank in self.running_at_timeout if not rank.started]
        if silent:
            say(f"never started: {name_ranks(silent)}")
        say(
            f"timeout after {self.timeout:g} s; ended the ranks that were still running: "
            f"{name_ranks(self.running_at_timeout)}"
        )
        return EXIT_TIMEOUT

    def _no_start(self) -> int:
        say(f"could not start {name_ranks(self.never_started)}:")
        words = [
            line.decode(errors="replace")
            for line in self.own_words
            if not line.startswith(b"[mpiexec@") and b"CANCELLED" not in line
        ]
        for line in words or ["the program that was to reach the host has ended without a word"]:
            say(f"  {line}")
        if self.stop_reason is Stop.HOST:
            say("Every host of the job needs this environment at the same path.")
        return 1

    def _failure(self, first: Rank, status: int, seconds: float) -> int:
        others = sum(rank is not first and rank.end != "exit 0" for rank in self.ranks)
        ended = f"; ended the other {others} running" if others else ""
        say(f"{first} {first.how()} after {seconds:.1f} s{ended}.")
        print_tail(first)
        return _code(first, status)


def _code(failed: Rank, status: int) -> int:
    """The exit status for a rank that has failed; `status` is mpiexec's."""
    if failed.end in ("abort", "host", "gone"):
        return status if 0 < status < 256 else 1
    is_exit = (failed.end or "").startswith("exit")
    return failed.code if is_exit else 128 + failed.code


def print_tail(rank: Rank) -> None:
    """Repeats the last lines of a rank."""
    if rank.tail:
        say(f"  the last lines of rank {rank.number}:")
    for line in rank.tail:
        say(f"    {line.decode(errors='replace')}")


def say(text: str) -> None:
    """A line of our own on stderr; nothing where that cannot be written."""
    say_as_it_is(f"ddlrun: {text}\n".encode(errors="replace"))


def say_as_it_is(data: bytes) -> None:
    """Words of the launcher's on stderr, as `say`."""
    with suppress(OSError):
        write_all(2, data)
