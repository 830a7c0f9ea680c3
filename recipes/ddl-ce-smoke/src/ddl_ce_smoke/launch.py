"""Start a rank program with ddlrun, and understand how it ended.

Needs nothing but the standard library, so that the suite can report a broken environment.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: Seconds that ddlrun gets to end everything after its own timeout, before it is killed.
GRACE = 20.0
#: ddlrun's exit status when it ended a run that took too long.
TIMED_OUT = 124

#: Process states of proc(5) that explain a hang.
STATES = {"T": "stopped by a signal", "t": "stopped by a debugger", "D": "waiting for a device"}


@dataclass(frozen=True)
class RankLog:
    """What one rank wrote in its journal."""

    rank: int
    host: str
    pid: int
    events: list[dict[str, Any]]

    def of(self, event: str) -> list[dict[str, Any]]:
        """Its events of one kind, in order."""
        return [entry for entry in self.events if entry["event"] == event]

    @property
    def ended(self) -> bool:
        """Whether it came to its regular end."""
        return bool(self.of("end"))

    @property
    def last(self) -> str:
        """What it was last doing."""
        steps = self.of("at")
        return str(steps[-1]["what"]) if steps else "starting"

    def __str__(self) -> str:
        """Who it is, for messages."""
        return f"rank {self.rank} on {self.host} (process {self.pid})"


@dataclass(frozen=True)
class Job:
    """A run of one rank program that has ended.

    Attributes:
        status: ddlrun's exit status, negative for a signal.
        output: standard output and error of ddlrun and all ranks together.
        ranks: a log per rank that got as far as to open its journal.
        states: process state by rank, read when the time was up; only of ranks on this host.
    """

    size: int
    status: int
    seconds: float
    timeout: float
    output: str
    ranks: list[RankLog]
    states: dict[int, str] = field(default_factory=dict)

    @property
    def timed_out(self) -> bool:
        """Whether the run was ended because it took too long."""
        return self.status == TIMED_OUT or self.seconds >= self.timeout + GRACE

    def problem(self) -> str | None:
        """One message that names the rank and host where it went wrong; None if it ended well."""
        if self.status == 0 and len(self.ranks) == self.size and all(r.ended for r in self.ranks):
            return None
        if self.timed_out:
            return f"not done after {self.timeout:.0f} s: {self._hanging()}"
        said, raised = launcher_message(self.output), self._first_error()
        if said or raised:
            return "; ".join(filter(None, (said, raised)))
        if missing := sorted(set(range(self.size)) - {log.rank for log in self.ranks}):
            return f"exit status {self.status}; ranks {missing} did not start: {self._tail(1)}"
        open_ends = [f"{log} was at {log.last}" for log in self.ranks if not log.ended]
        return f"exit status {self.status}; {'; '.join(open_ends) or self._tail(1)}"

    def detail(self) -> str:
        """What helps to understand a failure: each rank's last step, then the last output."""
        steps = [f"{log}: {'ended' if log.ended else log.last}" for log in self.ranks]
        traces = [error["trace"] for log in self.ranks for error in log.of("error")][:1]
        return "\n".join([*steps, "", *traces, self._tail(30)]).strip()

    def _first_error(self) -> str | None:
        """The exception that came first: those of the other ranks may only follow from it."""
        errors = [(e["time"], log, e["message"]) for log in self.ranks for e in log.of("error")]
        if not errors:
            return None
        _, log, message = min(errors, key=lambda error: error[0])
        return f"{log}, at {log.last}: {message}"

    def _hanging(self) -> str:
        waiting = [log for log in self.ranks if not log.ended]
        started = {log.rank for log in self.ranks}
        missing = [str(rank) for rank in range(self.size) if rank not in started]
        if missing:
            return f"rank {', '.join(missing)} never started"
        if not waiting:
            return "all ranks came to their end, but their processes did not"
        # Ranks in one collective wait for the one that is behind: stopped, or with fewer steps.
        stuck = [log for log in waiting if self.states.get(log.rank, "") in STATES]
        steps = {log.rank: len(log.events) for log in waiting}
        behind = stuck or [log for log in waiting if steps[log.rank] == min(steps.values())]
        notes = []
        for log in behind:
            why = STATES.get(self.states.get(log.rank, ""))
            notes.append(f"{log} is at {log.last}" + (f", {why}" if why else ""))
        if len(behind) < len(waiting):
            notes.append(f"the others wait at {next(r for r in waiting if r not in behind).last}")
        return "; ".join(notes)

    def _tail(self, lines: int) -> str:
        return "\n".join(self.output.strip().splitlines()[-lines:]) or "(no output)"


def launcher_message(output: str) -> str | None:
    """ddlrun's own first sentence in the output about what went wrong, without its name."""
    for line in output.splitlines():
        if line.startswith("ddlrun: "):
            return line.removeprefix("ddlrun: ")
    return None


@dataclass(frozen=True)
class Launcher:
    """Starts rank programs on this machine.

    Attributes:
        ddlrun: the launcher of the environment under test.
        python: the command in front of a rank program's name.
        timeout: seconds that one run may take.
    """

    ddlrun: Path
    python: Sequence[str]
    timeout: float

    def run(
        self, module: str, arguments: Sequence[str], ranks: int, environ: Mapping[str, str] = {}
    ) -> Job:
        """Runs `module` on `ranks` ranks to its end; never longer than `timeout` + GRACE.

        Whatever ends this call early (Ctrl-C, SIGTERM as an exception) ends the job first.
        """
        with tempfile.TemporaryDirectory(prefix="ddlce-smoke-") as folder:
            command = [str(self.ddlrun), "-H", f"localhost:{ranks}", "-timeout", str(self.timeout)]
            command += [*self.python, module, *arguments, "--journal", folder]
            start = time.monotonic()
            with tempfile.TemporaryFile("w+", errors="replace") as output:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, **environ},
                    start_new_session=True,  # a Ctrl-C is ours to pass on, once
                )
                try:
                    states = self._wait(process, Path(folder), start)
                finally:
                    end(process)
                output.seek(0)
                text = output.read()
            seconds = time.monotonic() - start
            logs = read_journals(Path(folder))
            return Job(ranks, process.returncode, seconds, self.timeout, text, logs, states)

    def _wait(self, process: subprocess.Popen[Any], folder: Path, start: float) -> dict[int, str]:
        """Waits for the end. Just before ddlrun's own timeout it looks at the ranks' states."""
        try:
            process.wait(max(0.0, start + self.timeout - 0.5 - time.monotonic()))
        except subprocess.TimeoutExpired:
            states = {log.rank: state_of(log.pid) for log in read_journals(folder)}
            with contextlib.suppress(subprocess.TimeoutExpired):  # then `end` deals with ddlrun
                process.wait(0.5 + GRACE)
            return states
        return {}


def end(process: subprocess.Popen[Any]) -> None:
    """Ends ddlrun, which ends its ranks; kills its whole session if it does not listen."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(GRACE / 2)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def read_journals(folder: Path) -> list[RankLog]:
    """The ranks' journals, by rank; without a last line that the rank's death cut off."""
    logs = []
    for path in folder.glob("rank-*.jsonl"):
        events = []
        for line in path.read_text().splitlines():
            try:
                events.append(json.loads(line))
            except json.JSONDecodeError:
                break
        if events:
            first = events[0]
            logs.append(RankLog(first["rank"], first["host"], first["pid"], events))
    return sorted(logs, key=lambda log: log.rank)


def state_of(pid: int) -> str:
    """The state letter of a process (proc(5)); empty where there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""
