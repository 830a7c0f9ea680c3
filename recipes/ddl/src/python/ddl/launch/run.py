"""Runs a job: streams its output, passes signals on, and says how it ended."""

import ctypes
import os
import re
import selectors
import signal
import subprocess
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from types import FrameType
from typing import BinaryIO

from ddl.launch.launcher import Demultiplexer, Launcher
from ddl.launch.layout import Job

TAIL_LINES = 12  # of each rank's output, repeated after a failure
GRACE = 4.0  # seconds for the ranks to end by themselves; longer than rank.py's
PASSED_ON = signal.SIGUSR1  # as batch systems send it before the time is over; by mpiexec, too
EXIT_TIMEOUT = 124
EXIT_BROKEN_PIPE = 128 + signal.SIGPIPE
_PR_SET_PDEATHSIG = 1
_PRCTL = ctypes.CDLL(None).prctl
_ABORT = re.compile(rb"Abort\((-?\d+)\) on node \d+")  # printed by the rank that calls MPI_Abort


@dataclass
class Rank:
    """What we know of one rank."""

    number: int
    host: str
    started: bool = False
    end: str | None = None  # "exit 3", "signal 9" or "abort"
    tail: deque[bytes] = field(default_factory=lambda: deque(maxlen=TAIL_LINES))

    def __str__(self) -> str:
        return f"rank {self.number} on {self.host}"

    @property
    def failed(self) -> bool:
        """It has ended, and not well."""
        return self.end not in (None, "exit 0")

    def how(self) -> str:
        """How it ended, for people."""
        word, _, number = (self.end or "").partition(" ")
        if word == "signal":
            return f"was killed by {signal_name(int(number))}"
        return "called MPI_Abort" if word == "abort" else f"ended with exit code {number}"


class Run:
    """One run of a job. `supervise` may be called once."""

    def __init__(self, job: Job, launcher: Launcher, timeout: float | None, verbose: bool) -> None:
        self.ranks = [Rank(number, job.host_of(number)) for number in range(job.size)]
        self.first_failure: Rank | None = None
        self.stop_reason: str | int | None = None  # "timeout", "failure", "chief", a signal
        self.running_at_timeout: list[Rank] = []
        self._chief = job.chief
        self._token = os.urandom(6).hex()
        self._command = launcher.command(job)
        self._environment = {**job.environment, "DDLRUN_TOKEN": self._token}
        self._launcher = launcher
        self._timeout = timeout
        self._verbose = verbose
        self._own_words: deque[bytes] = deque(maxlen=40)
        self._kill_at: float | None = None
        self._kills = 0

    def supervise(self) -> int:
        """Starts the job, sees it to its end and prints what went wrong; the exit status."""
        began = time.monotonic()
        wakeup = _catch_signals(self._signal)
        self._process = subprocess.Popen(
            self._command,
            env=self._environment,
            stdin=_own_stdin(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C comes to us alone; we pass it on
            preexec_fn=_die_with_parent,
        )
        selector = selectors.DefaultSelector()
        selector.register(wakeup, selectors.EVENT_READ)
        for pipe, sink in ((self._process.stdout, sys.stdout), (self._process.stderr, sys.stderr)):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
            stream = Stream(self, self._launcher.demultiplexer(), sink.buffer)
            selector.register(pipe, selectors.EVENT_READ, stream)
        deadline = began + self._timeout if self._timeout else None
        while len(selector.get_map()) > 1:
            for key, _ in selector.select(self._wait_time(deadline)):
                data = os.read(key.fd, 1 << 16)
                if key.data is None:
                    continue  # a signal, whose handler has run
                if not data:
                    selector.unregister(key.fileobj)
                self._pass_on(key.data, data)
            now = time.monotonic()
            if deadline and now >= deadline and self.stop_reason is None:
                self.running_at_timeout = [rank for rank in self.ranks if not rank.end]
                self.stop("timeout", signal.SIGTERM)
            if self._kill_at and (now >= self._kill_at or self._all_ended()):
                self._kill()
        status = self._process.wait()
        return self._conclude(status, time.monotonic() - began)

    def stop(self, reason: str | int, number: int) -> None:
        """Asks all ranks to end by a signal; they have GRACE seconds."""
        if self.stop_reason is None:
            self.stop_reason = reason
        if self._kill_at is None:
            self._kill_at = time.monotonic() + GRACE
            self._process.send_signal(number)

    def ended(self, rank: Rank, how: str) -> None:
        """Takes note of a rank's end; the first failure ends the run, and so does the chief."""
        rank.end = rank.end or how
        if rank.number == self._chief and not rank.failed and self.stop_reason is None:
            self.stop("chief", signal.SIGTERM)
        if rank.failed and self.stop_reason is None and self.first_failure is None:
            self.first_failure = rank
            if how != "abort":  # after which MPI itself ends the others
                self.stop("failure", signal.SIGTERM)

    def own_words(self, data: bytes) -> None:
        """Keeps what the launcher itself says: it matters when no rank explains a failure."""
        self._own_words.extend(data.splitlines())
        if self._verbose:
            sys.stderr.buffer.write(data)
            sys.stderr.buffer.flush()

    def report(self, rank: Rank, text: str) -> None:
        """A rank's wrapper speaks: `started`, `exit N` or `signal N`."""
        if text == "started":
            rank.started = True
        else:
            self.ended(rank, text)

    @property
    def token(self) -> bytes:
        """What marks a wrapper's report in its rank's output."""
        return self._token.encode()

    def _pass_on(self, stream: "Stream", data: bytes) -> None:
        try:
            stream.feed(data)
        except BrokenPipeError:  # `ddlrun ... | head`
            # Also what is buffered by now: Python flushes it at the end, and would exit with 120.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.sink.fileno())
            os.close(nowhere)
            self.stop(signal.SIGPIPE, signal.SIGTERM)

    def _signal(self, number: int, _frame: FrameType | None) -> None:
        if number == PASSED_ON:
            if any(rank.started for rank in self.ranks):  # before that it would end mpiexec
                self._process.send_signal(number)
        elif self._kill_at is None:
            self.stop(number, signal.SIGINT if number == signal.SIGINT else signal.SIGTERM)
        else:
            self._kill_at = time.monotonic()  # asked twice: now

    def _all_ended(self) -> bool:
        return all(rank.end or not rank.started for rank in self.ranks)

    def _kill(self) -> None:
        """mpiexec takes a second SIGINT as "at once"; then we stop asking."""
        self._process.send_signal(signal.SIGKILL if self._kills else signal.SIGINT)
        self._kills += 1
        self._kill_at = time.monotonic() + 2.0

    def _wait_time(self, deadline: float | None) -> float | None:
        times = [moment for moment in (deadline, self._kill_at) if moment]
        if deadline and self.stop_reason is not None:
            times.remove(deadline)
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _conclude(self, status: int, seconds: float) -> int:
        """Prints the last words, if there is anything to say; the exit status."""
        if self.stop_reason == "timeout":
            return self._conclude_timeout()
        if self.stop_reason == "chief":
            return 0
        if isinstance(self.stop_reason, int):
            say(f"{signal_name(self.stop_reason)}: all ranks were ended after {seconds:.1f} s")
            return 128 + self.stop_reason
        if self.first_failure:
            return self._conclude_failure(self.first_failure, status, seconds)
        lost = [rank for rank in self.ranks if rank.end is None]
        if not status and not lost:
            return 0
        for line in self._own_words:
            say(f"  mpiexec: {line.decode(errors='replace')}")
        if lost:
            say(f"lost {name_ranks(lost)}: gone without a word (MPI_Abort, or killed?)")
            self._print_tail(lost[0])
        else:
            say(f"mpiexec ended with {status}, though every rank ended well")
        return status if 0 < status < 256 else 1

    def _conclude_timeout(self) -> int:
        silent = [rank for rank in self.running_at_timeout if not rank.started]
        if silent:
            say(f"never started: {name_ranks(silent)}")
        say(
            f"timeout after {self._timeout:g} s; ended the ranks that were still running: "
            f"{name_ranks(self.running_at_timeout)}"
        )
        return EXIT_TIMEOUT

    def _conclude_failure(self, first: Rank, status: int, seconds: float) -> int:
        others = sum(rank is not first and rank.end != "exit 0" for rank in self.ranks)
        ended = f"; ended the other {others} running" if others else ""
        say(f"{first} {first.how()} after {seconds:.1f} s{ended}.")
        self._print_tail(first)
        word, _, number = (first.end or "").partition(" ")
        if word == "abort":
            return status if 0 < status < 256 else 1
        return int(number) if word == "exit" else 128 + int(number)

    def _print_tail(self, rank: Rank) -> None:
        if rank.tail:
            say(f"  the last lines of rank {rank.number}:")
        for line in rank.tail:
            say(f"    {line.decode(errors='replace')}")


class Stream:
    """One of stdout and stderr: whole lines with their rank and host before them."""

    def __init__(self, run: Run, demultiplexer: Demultiplexer, sink: BinaryIO) -> None:
        self.sink = sink
        self._run = run
        self._demultiplexer = demultiplexer
        self._partial = [b""] * len(run.ranks)
        self._report = re.compile(rb"\x1f" + run.token + rb" ([a-z]+(?: \d+)?)\n")

    def feed(self, data: bytes) -> None:
        """Passes on what can be passed on; empty `data`: the end of the stream."""
        for number, piece in self._demultiplexer.feed(data):
            if number is None:
                self._run.own_words(piece)
            elif number < len(self._partial):
                self._piece(self._run.ranks[number], piece)
        if not data:
            for rank in self._run.ranks:
                if self._partial[rank.number]:
                    self._line(rank, self._partial[rank.number] + b"\n")
                    self._partial[rank.number] = b""
        self.sink.flush()

    def _piece(self, rank: Rank, piece: bytes) -> None:
        text = self._partial[rank.number] + piece
        self._partial[rank.number] = b""
        for line in text.splitlines(keepends=True):
            report = self._report.search(line)
            if report:
                text = line[: report.start()]  # a line that the program did not finish
                if text:
                    self._line(rank, text + b"\n")
                self._run.report(rank, report[1].decode())
            elif line.endswith((b"\n", b"\r")):
                self._line(rank, line)
            else:
                self._partial[rank.number] = line

    def _line(self, rank: Rank, line: bytes) -> None:
        rank.tail.append(line.rstrip(b"\r\n")[:500])
        self.sink.write(b"[%d@%s] %s" % (rank.number, rank.host.encode(), line))
        if _ABORT.match(line):
            self._run.ended(rank, "abort")


def name_ranks(ranks: list[Rank]) -> str:
    """The ranks with their hosts; not more than fit on a screen."""
    more = f" and {len(ranks) - 16} more" if len(ranks) > 16 else ""
    return ", ".join(map(str, ranks[:16])) + more


def say(text: str) -> None:
    """A line of our own on stderr."""
    print(f"ddlrun: {text}", file=sys.stderr, flush=True)


def signal_name(number: int) -> str:
    """For example "SIGKILL (signal 9)"."""
    try:
        return f"{signal.Signals(number).name} (signal {number})"
    except ValueError:
        return f"signal {number}"


def _catch_signals(handler: "signal._HANDLER") -> int:
    """Calls `handler` for what ends us, and what is passed on; the file select() wakes up by."""
    reader, writer = os.pipe()
    for end in (reader, writer):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, PASSED_ON):
        if signal.getsignal(number) != signal.SIG_IGN:  # as nohup sets it
            signal.signal(number, handler)
    return reader


def _die_with_parent() -> None:
    _PRCTL(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _own_stdin() -> int | None:
    """Ours, for rank 0; but in the background a terminal's input is not for us."""
    try:
        background = os.isatty(0) and os.tcgetpgrp(0) != os.getpgrp()
    except OSError:
        background = True
    return subprocess.DEVNULL if background else None
