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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddl_ce_smoke.placement import Placement

#: Seconds that ddlrun gets to end everything after its own timeout, before it is killed.
GRACE = 20.0
#: ddlrun's exit status when it ended a run that took too long.
TIMED_OUT = 124

#: The part of a run's time that a rank may wait for another one. After that, the library's own
#: error names the rank that did not come, which the end of the whole run could not.
RANK_TIMEOUT_SHARE = 0.5


@dataclass(frozen=True)
class RankLog:
    """The journal of one rank."""

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
        """The rank's last step."""
        steps = self.of("at")
        return str(steps[-1]["what"]) if steps else "starting"

    def __str__(self) -> str:
        """The rank with its host and process, for messages."""
        return f"rank {self.rank} on {self.host} (process {self.pid})"


@dataclass(frozen=True)
class Job:
    """A run of one rank program that has ended.

    Attributes:
        status: ddlrun's exit status, negative for a signal.
        output: standard output and error of ddlrun and all ranks together.
        ranks: a log per rank that got as far as to open its journal.
    """

    size: int
    status: int
    seconds: float
    timeout: float
    output: str
    ranks: list[RankLog]

    @property
    def timed_out(self) -> bool:
        """Whether the run was ended because it took too long."""
        return self.status == TIMED_OUT or self.seconds >= self.timeout + GRACE

    def problem(self) -> str | None:
        """One message that names the rank and host where it went wrong; None if it ended well."""
        if self.status == 0 and len(self.ranks) == self.size and all(r.ended for r in self.ranks):
            return None
        said, error = launcher_message(self.output), self._first_error()
        found = []
        if self.timed_out:
            found.append(f"not done after {self.timeout:.0f} s")
        elif said and not (error and _only_follows(said)):
            found.append(said)
        if error:
            log, event = error
            found.append(f"{log}, at {log.last}: {event['message']}")
        if self.timed_out or not found or (error and "rank " not in error[1]["message"]):
            found += self._unfinished()
        return "; ".join(found) or f"exit status {self.status}: {self._tail(1)}"

    def detail(self) -> str:
        """Lines that help to understand a failure: each rank's last step, then the last output."""
        steps = [f"{log}: {'ended' if log.ended else log.last}" for log in self.ranks]
        error = self._first_error()
        trace = error[1]["trace"] if error else ""
        return "\n".join([*steps, "", trace, self._tail(30)]).strip()

    def _first_error(self) -> tuple[RankLog, dict[str, Any]] | None:
        """The exception that came first: those of the other ranks may only follow from it."""
        errors = [
            (error["time"], log.rank, error) for log in self.ranks for error in log.of("error")
        ]
        if not errors:
            return None
        _, rank, error = min(errors)
        return next(log for log in self.ranks if log.rank == rank), error

    def _unfinished(self) -> list[str]:
        """The ranks that did not come to an end, and how far they came."""
        started = {log.rank for log in self.ranks}
        missing = [f"rank {rank} never started" for rank in range(self.size) if rank not in started]
        silent = [log for log in self.ranks if not (log.ended or log.of("error"))]
        return missing + [f"{log} got no further than {log.last}" for log in silent]

    def _tail(self, lines: int) -> str:
        return "\n".join(self.output.strip().splitlines()[-lines:]) or "(no output)"


def launcher_message(output: str) -> str | None:
    """ddlrun's own first sentence in the output about the failure, without its name."""
    for line in output.splitlines():
        if line.startswith("ddlrun: "):
            return line.removeprefix("ddlrun: ")
    return None


def _only_follows(said: str) -> bool:
    """Whether the launcher tells of an end that an exception explains better."""
    return "MPI_Abort" in said or "ended with exit code" in said


@dataclass(frozen=True)
class Launcher:
    """Starts rank programs.

    Attributes:
        ddlrun: the launcher of the environment under test.
        python: the command in front of a rank program's name.
        timeout: seconds that one run may take.
        placement: where.
        hosts: how many these are.
    """

    ddlrun: Path
    python: Sequence[str]
    timeout: float
    placement: Placement
    hosts: int = 1

    def run(
        self,
        module: str,
        arguments: Sequence[str],
        ranks: int | None,
        environ: Mapping[str, str] = {},
    ) -> Job:
        """Runs `module` on `ranks` ranks to its end; never longer than `timeout` + GRACE.

        Whatever ends this call early (Ctrl-C, SIGTERM as an exception) ends the job first.

        Args:
            module: the rank program.
            arguments: its own.
            ranks: how many; None: one on every host.
            environ: variables besides.
        """
        place = self.placement
        with tempfile.TemporaryDirectory(prefix="ddlce-smoke-", dir=place.shared) as folder:
            words = place.on(ranks, self.hosts) if ranks else place.one_on_each()
            command = [str(self.ddlrun), *words, "-timeout", str(self.timeout)]
            rank_timeout = str(self.timeout * RANK_TIMEOUT_SHARE)
            command += [*self.python, module, *arguments, "--timeout", rank_timeout]
            command += ["--journal", folder]
            start = time.monotonic()
            with tempfile.TemporaryFile("w+", errors="replace") as output:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, "DDL_TIMEOUT": rank_timeout, **environ},
                    start_new_session=True,  # a Ctrl-C is ours to pass on, once
                )
                try:
                    # ddlrun keeps the time; when it does not, `end` deals with it.
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(self.timeout + GRACE)
                finally:
                    end(process)
                output.seek(0)
                text = output.read()
            seconds = time.monotonic() - start
            logs = read_journals(Path(folder))
            size = ranks or max((log.of("begin")[0]["size"] for log in logs), default=1)
            return Job(size, process.returncode, seconds, self.timeout, text, logs)


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
