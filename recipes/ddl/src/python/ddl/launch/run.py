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
from collections.abc import Callable, Mapping
from functools import partial
from types import FrameType

from ddl.launch.launcher import Launcher
from ddl.launch.layout import Job
from ddl.launch.ranks import Clocks, Rank, first_failure, name_ranks, signal_name
from ddl.launch.stdin import Input
from ddl.launch.streams import Stream

GRACE = 2.0  # seconds for the ranks to end by themselves, if -grace does not say
MARGIN = 2.0  # seconds for their wrappers (rank.py) to tell us, and to end
SETTLE = 0.2  # seconds in which failures belong together: one rank took the others along
# Signals that batch systems send before the time is over, so that programs can save, and the signal
# that stands for each. mpiexec passes on only some, and rank.py turns SIGQUIT back.
PASSED_ON = {signal.SIGUSR1: signal.SIGUSR1, signal.SIGUSR2: signal.SIGQUIT}
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGXCPU)
EXIT_TIMEOUT = 124
_PR_SET_PDEATHSIG = 1
_PRCTL = ctypes.CDLL(None).prctl


class Run:
    """One run of a job. `supervise` may be called once."""

    def __init__(
        self,
        job: Job,
        launcher: Launcher,
        timeout: float | None,
        verbose: bool,
        grace: float | None = None,
    ) -> None:
        self.ranks = [Rank(number, job.host_of(number)) for number in range(job.size)]
        self.stop_reason: str | int | None = None  # "timeout", "failure", "chief", "host", a signal
        self.running_at_timeout: list[Rank] = []
        self._never_started: list[Rank] = []
        self._failures: list[Rank] = []  # before anybody was asked to end
        self._chief = job.chief
        self._patience = library_timeout(job.environment)
        self._token = os.urandom(6).hex()
        self._command = launcher.command(job)
        self._environment = {**launcher.environment(job), "DDLRUN_TOKEN": self._token}
        self._launcher = launcher
        self._timeout = timeout
        self._verbose = verbose
        self._grace = GRACE if grace is None else grace
        self._milestones: list[str] = []  # of the start, for -v
        self._own_words: deque[bytes] = deque(maxlen=40)
        self._clocks = Clocks()
        self._input = Input()
        self._streams: list[Stream] = []
        self._to_pass_on: list[int] = []  # signals, until all ranks are there
        self._stopped: list[Rank] = []
        self._settle_at: float | None = None
        self._kill_at: float | None = None
        self._kills = 0

    def supervise(self) -> int:
        """Starts the job, sees it to its end and prints what went wrong; the exit status."""
        began = time.monotonic()
        wakeup = _catch_signals(self._signal)
        self._process = subprocess.Popen(
            self._command,
            env=self._environment,
            stdin=subprocess.PIPE if self._input.is_open else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C comes to us alone; we pass it on
            preexec_fn=die_with_parent,
        )
        self._reach("mpiexec")
        if self._process.stdin:
            self._input.connect(self._process.stdin)
        selector = selectors.PollSelector()  # epoll refuses files, as our input may be
        selector.register(wakeup, selectors.EVENT_READ)
        for pipe, sink in ((self._process.stdout, sys.stdout), (self._process.stderr, sys.stderr)):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
            demultiplexer, token = self._launcher.demultiplexer(), self._token.encode()
            stream = Stream(
                self.ranks, token, self.report, demultiplexer, self.own_words, sink.buffer
            )
            self._streams.append(stream)
            selector.register(pipe, selectors.EVENT_READ, stream)
        open_pipes = len(self._streams)
        deadline = began + self._timeout if self._timeout else None
        while open_pipes:
            _watch(selector, 0, self._reads_input())
            for key, _ in selector.select(self._wait_time(deadline)):
                if key.fd == wakeup:
                    os.read(wakeup, 1 << 10)  # a signal, whose handler has run
                elif key.fd == 0:
                    self._input.move()
                else:
                    data = os.read(key.fd, 1 << 16)
                    if not data:
                        selector.unregister(key.fileobj)
                        open_pipes -= 1
                    self._pass_on(key.data, partial(key.data.feed, data))
            self._look_at_the_clock(deadline)
        status = self._process.wait()
        return self._conclude(status, time.monotonic() - began)

    def stop(self, reason: str | int, number: int) -> None:
        """Asks all ranks to end by a signal; they have the grace's seconds."""
        if self.stop_reason is None:
            self.stop_reason = reason
        if self._kill_at is None:
            self._kill_at = time.monotonic() + self._grace + MARGIN
            self._process.send_signal(number)

    def ended(self, rank: Rank, how: str, at: float, *, was_told: bool = False) -> None:
        """Takes note of a rank's end; a failure ends the run, and so does the chief's good end."""
        if rank.end:
            return
        rank.end, rank.ended_at, rank.was_told, rank.stopped_by = how, at, was_told, 0
        if self.stop_reason is not None:
            return
        if rank.failed:
            self._failures.append(rank)
            self._settle_at = self._settle_at or time.monotonic() + SETTLE
        elif rank.number == self._chief:
            self.stop("chief", signal.SIGTERM)

    def report(self, rank: Rank, text: str) -> None:
        """A rank's wrapper speaks, as rank.py's `report` has it; or MPI does, of an abort."""
        word, *more = text.split()
        now = time.monotonic()
        if word == "abort":
            self.ended(rank, word, now)
            return
        number, was_told, at = int(more[0]), more[1] == "1", float(more[2])
        at = self._clocks.ours(rank.host, at, now)
        if word == "started":
            rank.started = True
            self._note_start()
            self._pass_on_signals()
        elif word == "input":
            self._input.allow(number)
        elif word == "stopped":
            rank.stopped_by, rank.stopped_at = number, now
            self._stopped.append(rank)
            say(f"{rank} was stopped by {signal_name(number)}; the others may wait for it.")
        elif word == "continued":
            rank.stopped_by = 0
            self._stopped.remove(rank)
            say(f"{rank} goes on.")
        else:
            if rank.number == 0:
                self._input.close()  # its wrapper waits for that
            self.ended(rank, f"{word} {number}", at, was_told=was_told)

    def own_words(self, data: bytes) -> None:
        """Keeps the launcher's own words, which matter when no rank explains a failure."""
        lines = data.splitlines()
        self._own_words.extend(lines)
        gone = {host for line in lines for host in self._launcher.gone_hosts(os.fsdecode(line))}
        silent = [rank for rank in self.ranks if rank.host in gone and not rank.started]
        if silent and self.stop_reason is None:
            self._never_started = silent
            self.stop("host", signal.SIGTERM)
        if self._verbose:
            sys.stderr.buffer.write(data)
            sys.stderr.buffer.flush()

    def _note_start(self) -> None:
        """With -v, says where the time of the start has gone, once all ranks are there."""
        count = sum(rank.started for rank in self.ranks)
        if count == 1:
            self._reach("the first rank")
        if count == len(self.ranks):
            self._reach(f"all {count}")
            if self._verbose:
                say(f"started {', '.join(self._milestones)}")

    def _reach(self, milestone: str) -> None:
        self._milestones.append(f"{milestone} after {own_age():.2f} s")

    def _reads_input(self) -> bool:
        moment = self._input.waits_until()
        return moment is not None and time.monotonic() >= moment

    def _look_at_the_clock(self, deadline: float | None) -> None:
        """Does the work that is due now."""
        now = time.monotonic()
        for stream in self._streams if self._input.is_open else ():
            if now >= (stream.asks_at() or now + 1):
                self._pass_on(stream, stream.show_question)
        for rank in self._stopped:
            if rank.stopped_by and now >= rank.stopped_at + self._patience:
                self.ended(rank, f"stopped {rank.stopped_by}", now)
        if deadline and now >= deadline and self.stop_reason is None:
            self.running_at_timeout = [rank for rank in self.ranks if not rank.end]
            self.stop("timeout", signal.SIGTERM)
        if self._settle_at and now >= self._settle_at and self.stop_reason is None:
            if any(rank.end != "abort" for rank in self._failures):  # then MPI itself ends all
                self.stop("failure", signal.SIGTERM)
            self._settle_at = None
        if self._kill_at and (now >= self._kill_at or self._all_ended()):
            self._kill()

    def _wait_time(self, deadline: float | None) -> float | None:
        """Seconds until something is due."""
        times = [self._settle_at, self._kill_at]
        times += [deadline] if self.stop_reason is None else []
        times += [rank.stopped_at + self._patience for rank in self._stopped if rank.stopped_by]
        if self._input.is_open:
            times += [stream.asks_at() for stream in self._streams]
            if not self._reads_input():
                times.append(self._input.waits_until())
        due = min((moment for moment in times if moment), default=None)
        return None if due is None else max(0.0, due - time.monotonic())

    def _pass_on(self, stream: Stream, write: Callable[[], None]) -> None:
        try:
            write()
        except BrokenPipeError:  # `ddlrun ... | head`
            # Buffered output goes there, too: Python flushes it at the end, and would exit with
            # 120.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.sink.fileno())
            os.close(nowhere)
            self.stop(signal.SIGPIPE, signal.SIGTERM)

    def _signal(self, number: int, _frame: FrameType | None) -> None:
        if number in PASSED_ON:
            self._to_pass_on.append(number)
            self._pass_on_signals()
        elif self._kill_at is None:
            self.stop(number, signal.SIGINT if number == signal.SIGINT else signal.SIGTERM)
        else:
            self._kill_at = time.monotonic()  # asked twice: now

    def _pass_on_signals(self) -> None:
        """Passes signals on once all ranks are there; earlier, they would end the starters."""
        if self._to_pass_on and all(rank.started for rank in self.ranks):
            while self._to_pass_on:
                self._process.send_signal(PASSED_ON[signal.Signals(self._to_pass_on.pop(0))])

    def _all_ended(self) -> bool:
        return all(rank.end or not rank.started for rank in self.ranks)

    def _kill(self) -> None:
        """mpiexec takes a second SIGINT as "at once"; then we stop asking."""
        self._process.send_signal(signal.SIGKILL if self._kills else signal.SIGINT)
        self._kills += 1
        self._kill_at = time.monotonic() + 2.0

    def _conclude(self, status: int, seconds: float) -> int:
        """Prints the last words, if there is anything to say; the exit status."""
        if self.stop_reason == "timeout":
            return self._conclude_timeout()
        if self.stop_reason == "chief":
            return 0
        if self.stop_reason == "host":
            return self._conclude_host()
        if isinstance(self.stop_reason, int):
            say(f"{signal_name(self.stop_reason)}: all ranks were ended after {seconds:.1f} s")
            return 128 + self.stop_reason
        lost = [rank for rank in self.ranks if rank.end is None]
        first = first_failure(self._failures)
        if first and not (lost and first.was_told):  # else mpiexec told it to end: it lost another
            return self._conclude_failure(first, status, seconds)
        if not status and not lost:
            return 0
        for line in self._own_words:
            say(f"  mpiexec: {line.decode(errors='replace')}")
        if lost:
            say(f"lost {name_ranks(lost)}: gone without a word (MPI_Abort, or killed?)")
            if len(lost) == 1:  # of several, mpiexec may have ended all but one
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

    def _conclude_host(self) -> int:
        say(f"could not start {name_ranks(self._never_started)}:")
        for line in self._own_words:
            if line.startswith((b"srun", b"slurmstepd")) and b"CANCELLED" not in line:
                say(f"  {line.decode(errors='replace')}")
        say("Every host of the job needs this environment at the same path.")
        return 1

    def _conclude_failure(self, first: Rank, status: int, seconds: float) -> int:
        others = sum(rank is not first and rank.end != "exit 0" for rank in self.ranks)
        ended = f"; ended the other {others} running" if others else ""
        say(f"{first} {first.how()} after {seconds:.1f} s{ended}.")
        self._print_tail(first)
        if first.end == "abort":
            return status if 0 < status < 256 else 1
        is_exit = (first.end or "").startswith("exit")
        return first.code if is_exit else 128 + first.code

    def _print_tail(self, rank: Rank) -> None:
        if rank.tail:
            say(f"  the last lines of rank {rank.number}:")
        for line in rank.tail:
            say(f"    {line.decode(errors='replace')}")


def library_timeout(environment: Mapping[str, str]) -> float:
    """After how many seconds libddl gives up a peer: it takes a stopped rank for lost, too."""
    said = re.findall(r"-timeout\s+(\S+)", environment.get("DDL_OPTIONS", ""))
    for text in (*said[-1:], environment.get("DDL_TIMEOUT", "")):
        try:
            return max(0.0, float(text))
        except ValueError:
            continue  # the library says what is wrong with it
    return 60.0


def own_age() -> float:
    """Seconds since this process began (proc_pid_stat(5): the field `starttime`)."""
    with open("/proc/self/stat") as file:  # noqa: PTH123
        ticks = int(file.read().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def say(text: str) -> None:
    """A line of our own on stderr."""
    print(f"ddlrun: {text}", file=sys.stderr, flush=True)


def _catch_signals(handler: "signal._HANDLER") -> int:
    """Calls `handler` for signals that end us or are passed on; returns select()'s wake-up file."""
    reader, writer = os.pipe()
    for end in (reader, writer):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in (*ENDING, *PASSED_ON):
        if signal.getsignal(number) != signal.SIG_IGN:  # as nohup sets it
            signal.signal(number, handler)
    return reader


def _watch(selector: selectors.BaseSelector, file: int, is_watched: bool) -> None:
    """Has the selector look at `file`, or not."""
    if is_watched != (file in selector.get_map()):
        if is_watched:
            selector.register(file, selectors.EVENT_READ)
        else:
            selector.unregister(file)


def die_with_parent() -> None:
    """Has the kernel end this process when its parent dies: for `preexec_fn` of subprocess."""
    _PRCTL(_PR_SET_PDEATHSIG, signal.SIGTERM)
