"""Runs a job: streams its output, passes signals on, and says how it ended."""

import ctypes
import math
import os
import re
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import FrameType
from typing import NamedTuple

from ddl.launch.awake import now, until
from ddl.launch.hydra import HydraLauncher
from ddl.launch.layout import Job
from ddl.launch.outcome import Outcome, Stop, say, say_as_it_is
from ddl.launch.ranks import Clocks, Rank, signal_name
from ddl.launch.scontrol import allow_requeue, forbid_requeue
from ddl.launch.sink import Sink
from ddl.launch.starters import Starters
from ddl.launch.stdin import Input
from ddl.launch.streams import Stream

MARGIN = 2.0  # seconds for their wrappers (rank.py) to tell us, and to end
SETTLE = 0.2  # seconds in which failures belong together: one rank took the others along
# Signals that batch systems send before the time is over, so that programs can save, and the signal
# that stands for each. mpiexec passes on only some, and rank.py turns SIGQUIT back.
PASSED_ON = {signal.SIGUSR1: signal.SIGUSR1, signal.SIGUSR2: signal.SIGQUIT}
PEER_TIMEOUT_S = 60.0  # where nothing is said: kDefaultTimeout in libddl's base/timeout.h
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGXCPU)
OUR_OWN = (Stop.TIMEOUT, signal.SIGPIPE)  # reasons to end a job that the batch system has not
ASKING = 10.0  # seconds for Slurm to take that
_PR_SET_PDEATHSIG = 1
_PRCTL = ctypes.CDLL(None).prctl


class Deadline(NamedTuple):
    """The moment (of awake.now) from which on something is to be done.

    Attributes:
        is_early: it is to be done now, which no clock tells.
    """

    at: float
    act: Callable[[], None]
    is_early: bool = False


class Run:
    """One run of a job. `supervise` may be called once."""

    def __init__(
        self,
        job: Job,
        launcher: HydraLauncher,
        timeout: float | None,
        verbose: bool,
        grace: float,
    ) -> None:
        self.ranks = [Rank(number, job.host_of(number)) for number in range(job.size)]
        self.outcome = Outcome(self.ranks, timeout, min_ranks=job.min_ranks)
        self._chief = job.chief
        self._peer_timeout = peer_timeout(job.environment)
        self._token = os.urandom(6).hex()
        self._command = launcher.command(job)
        self._environment = {**launcher.environment(job), "DDLRUN_TOKEN": self._token}
        self._launcher = launcher
        self._timeout = timeout
        self._verbose = verbose
        self._grace = grace
        self._startup_times: list[str] = []  # for -v
        self._clocks = Clocks()
        self._input = Input()
        self._streams: list[Stream] = []
        self._to_pass_on: list[int] = []  # signals, until all ranks are there
        self._stopped: list[Rank] = []
        self._process: subprocess.Popen[bytes]
        self._early: list[int] | None = []  # signals, until mpiexec is there
        self._settle_at: float | None = None
        self._starters = Starters(job.hosts)
        self._kill_at: float | None = None
        self._kills = 0
        self._is_last = False  # Slurm is not to start the job again

    def supervise(self) -> int:
        """Starts the job, sees it to its end and prints what went wrong; the exit status."""
        self._began = began = time.monotonic()
        self._deadline = now() + self._timeout if self._timeout else None
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
        early, self._early = self._early or [], None
        for number in early:
            self._signal(number, None)
        self._reach("mpiexec")
        self._starters.begin()
        if self._process.stdin:
            self._input.connect(self._process.stdin)
        selector = selectors.PollSelector()  # epoll refuses files, as our input may be
        selector.register(wakeup, selectors.EVENT_READ)
        for pipe, sink in ((self._process.stdout, Sink(1)), (self._process.stderr, Sink(2))):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
            demultiplexer, token = self._launcher.demultiplexer(), self._token.encode()
            stream = Stream(self.ranks, token, self.report, demultiplexer, self.own_words, sink)
            self._streams.append(stream)
            selector.register(pipe, selectors.EVENT_READ, stream)
        open_pipes = len(self._streams)
        while open_pipes:
            _watch(selector, 0, self._reads_input())
            asked = now()
            ready = selector.select(self._wait_time())
            self._starters.listened(now() - asked)
            for key, _ in ready:
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
            self._look_at_the_clock()
        status = self._process.wait()
        if self._is_last:
            allow_requeue(os.environ, ASKING)
        return self.outcome.conclude(status, time.monotonic() - began)

    def stop(self, reason: Stop | signal.Signals, number: int = signal.SIGTERM) -> None:
        """Asks all ranks to end by the signal `number`; they have the grace's seconds."""
        if self.outcome.stop_reason is None:
            self.outcome.stop_reason = reason
        if self._kill_at is None:
            # The ranks see a SIGTERM, as from Slurm: a Checkpointer would have the job start again.
            if reason in OUR_OWN and os.environ.get("SLURM_JOB_ID"):
                self._is_last = forbid_requeue(os.environ, ASKING)
            self._kill_at = now() + self._grace + MARGIN
            self._process.send_signal(number)

    def ended(self, rank: Rank, how: str, at: float, *, was_told: bool = False) -> None:
        """Takes note of a rank's end; a failure ends the run, and so does the chief's good end."""
        if rank.number == 0:
            self._input.close()  # its wrapper waits for that
        if rank.end:
            return
        rank.end, rank.ended_at, rank.was_told, rank.stopped_by = how, at, was_told, 0
        if self.outcome.stop_reason is not None:
            return
        if rank.failed and self.outcome.min_ranks is not None:
            if not self.outcome.lose(rank, time.monotonic() - self._began):
                self.stop(Stop.FEW)
        elif rank.failed:
            self.outcome.failures.append(rank)
            # MPI itself ends all when a rank has called MPI_Abort.
            delay = MARGIN if rank.aborted_at else SETTLE
            self._settle_at = min(self._settle_at or math.inf, now() + delay)
        elif rank.number == self._chief:
            self.stop(Stop.CHIEF)

    def report(self, rank: Rank, text: str) -> None:
        """A rank's wrapper speaks, as rank.py's `report` has it; or MPI does, of an abort."""
        word, *more = text.split()
        moment = time.monotonic()
        if word == "abort":
            rank.aborted_at = moment
            return
        number, was_told, at = int(more[0]), more[1] == "1", float(more[2])
        at = self._clocks.ours(rank.host, at, moment)
        if word == "started":
            rank.started = True
            self._note_start()
            self._pass_on_signals()
        elif word == "input":
            self._input.allow(number)
        elif word == "output":
            rank.has_written = True
        elif word == "stopped":
            if not rank.stopped_by:
                self._stopped.append(rank)
            rank.stopped_by, rank.stopped_at = number, now()
            say(f"{rank} was stopped by {signal_name(number)}; the others may wait for it.")
        elif word == "continued":
            self._goes_on(rank)
        else:
            if word == "exit":  # so soon after it went on that its wrapper saw but one of the two
                self._goes_on(rank)
            self.ended(rank, f"{word} {number}", at, was_told=was_told)

    def _goes_on(self, rank: Rank) -> None:
        # Unknown, if its wrapper was stopped, too, when the rank was: all of a job may be.
        if rank.stopped_by:
            rank.stopped_by = 0
            self._stopped.remove(rank)
            say(f"{rank} goes on.")

    def own_words(self, data: bytes) -> None:
        """Keeps the launcher's own words, which matter when no rank explains a failure."""
        lines = data.splitlines()
        self.outcome.own_words.extend(lines)
        gone = {host for line in lines for host in self._launcher.gone_hosts(os.fsdecode(line))}
        lost = [rank for rank in self.ranks if rank.host in gone and not rank.started]
        self._never(Stop.HOST, lost)
        left = {self._launcher.left_host(os.fsdecode(line)) for line in lines}
        for rank in self.ranks:
            if rank.host in left:
                self.ended(rank, "host", time.monotonic())
        self._starters.hear()
        if self._verbose:
            say_as_it_is(data)

    def _never(self, reason: Stop, ranks: list[Rank]) -> None:
        """Ends the job for ranks that cannot start any more, if there are any."""
        if ranks and self.outcome.stop_reason is None:
            self.outcome.never_started = ranks
            self.stop(reason)

    def _note_start(self) -> None:
        """With -v, says where the time of the start has gone, once all ranks are there."""
        count = sum(rank.started for rank in self.ranks)
        if count == 1:
            self._reach("the first rank")
        if count == len(self.ranks):
            self._reach(f"all {count}")
            if self._verbose:
                say(f"started {', '.join(self._startup_times)}")

    def _reach(self, step: str) -> None:
        self._startup_times.append(f"{step} after {own_age():.2f} s")

    def _reads_input(self) -> bool:
        moment = self._input.waits_until()
        return moment is not None and now() >= moment

    def _deadlines(self) -> Iterator[Deadline]:
        """All that is to be done at some moment, in this order where several are due."""
        for stream in self._streams if self._input.is_open else ():
            if asks_at := stream.asks_at():
                yield Deadline(asks_at, partial(self._pass_on, stream, stream.show_question))
        reads_at = self._input.waits_until()
        if reads_at and not self._reads_input():
            yield Deadline(reads_at, lambda: None)  # the loop watches it from then on
        for rank in self._stopped:
            if rank.stopped_by and self._may_lose():
                yield Deadline(rank.stopped_at + self._peer_timeout, partial(self._lose, rank))
        if self._deadline and self.outcome.stop_reason is None:
            yield Deadline(self._deadline, self._time_out)
        if self._settle_at:
            yield Deadline(self._settle_at, self._fail)
        if self._starters.look_at:
            yield Deadline(self._starters.look_at, self._look_for_starters)
        if self._kill_at:
            yield Deadline(self._kill_at, self._kill, self._all_ended())

    def _look_at_the_clock(self) -> None:
        """Does the work that is due now. One piece of it may make the next ones due, or not."""
        moment = now()
        for deadline in self._deadlines():
            if moment >= deadline.at or deadline.is_early:
                deadline.act()

    def _wait_time(self) -> float | None:
        """Seconds until something may be due."""
        due = min((deadline.at for deadline in self._deadlines()), default=None)
        return None if due is None else until(due)

    def _lose(self, rank: Rank) -> None:
        """A rank was stopped for so long that its peers have given it up."""
        self.ended(rank, f"stopped {rank.stopped_by}", time.monotonic())
        if self.outcome.min_ranks is not None and all(other.end for other in self.ranks):
            self.stop(Stop.OVER)

    def _may_lose(self) -> bool:
        """Whether a stopped rank ends the wait: a job that goes on may see it come back."""
        is_over = all(rank.end or rank.stopped_by for rank in self.ranks)
        return self.outcome.min_ranks is None or is_over

    def _time_out(self) -> None:
        self.outcome.running_at_timeout = [rank for rank in self.ranks if not rank.end]
        self.stop(Stop.TIMEOUT)

    def _fail(self) -> None:
        """Ranks that failed together have told us by now."""
        self._settle_at = None
        if self.outcome.stop_reason is None:
            self.stop(Stop.FAILURE)

    def _look_for_starters(self) -> None:
        """Ends the job if mpiexec waits for a host that it will not reach."""
        if self.outcome.stop_reason is None:
            self._never(Stop.START, self._starters.look(self._process.pid, self.ranks))
        else:
            self._starters.look_at = None

    def _pass_on(self, stream: Stream, write: Callable[[], None]) -> None:
        try:
            write()
        except BrokenPipeError:  # `ddlrun ... | head`
            self.stop(signal.SIGPIPE)
        if stream.sink.lost and not self.outcome.lost_output:
            self.outcome.lost_output = stream.sink.lost
            say(f"cannot write the ranks' output: {stream.sink.lost}; the job goes on")

    def _signal(self, number: int, _frame: FrameType | None) -> None:
        if self._early is not None:
            self._early.append(number)
        elif number in PASSED_ON:
            self._to_pass_on.append(number)
            self._pass_on_signals()
        elif self._kill_at is None:
            is_int = number == signal.SIGINT
            self.stop(signal.Signals(number), signal.SIGINT if is_int else signal.SIGTERM)
        else:
            self._kill_at = now()  # asked twice: now

    def _pass_on_signals(self) -> None:
        """Passes signals on once all ranks are there; earlier, they would end the starters."""
        if self._to_pass_on and all(rank.started or rank.end for rank in self.ranks):
            while self._to_pass_on:
                self._process.send_signal(PASSED_ON[signal.Signals(self._to_pass_on.pop(0))])

    def _all_ended(self) -> bool:
        return all(rank.is_over or not rank.started for rank in self.ranks)

    def _kill(self) -> None:
        """mpiexec takes a second SIGINT as "at once"; then we stop asking."""
        self._process.send_signal(signal.SIGKILL if self._kills else signal.SIGINT)
        self._kills += 1
        self._kill_at = now() + 2.0


def peer_timeout(environment: Mapping[str, str]) -> float:
    """After how many seconds libddl gives up a peer: it takes a stopped rank for lost, too.

    As `ddl._core.timeout_of`, which this host may not have; a test compares them.
    """
    said = re.findall(r"-timeout\s+(\S+)", environment.get("DDL_OPTIONS", ""))
    for text in (*said[-1:], environment.get("DDL_TIMEOUT", "")):
        try:
            return max(0.0, float(text))
        except ValueError:
            continue  # the library says what is wrong with it
    return PEER_TIMEOUT_S


def own_age() -> float:
    """Seconds since this process began (proc_pid_stat(5): the field `starttime`)."""
    with open("/proc/self/stat") as file:  # noqa: PTH123
        ticks = int(file.read().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


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
