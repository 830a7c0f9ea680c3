"""One command on a host of the lab, with a limit, and with nothing left of it afterwards."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from bench.lab.network import Lab

GRACE = 2.0
"""Seconds that a job's own helpers have to end after it, by default."""


@dataclass(frozen=True)
class Outcome:
    """What became of a command.

    Attributes:
        code: its exit status; None when it was killed at the limit.
        stdout: what it printed.
        stderr: what it complained about.
        seconds: how long it took.
        orphans: its processes that had to be killed after it.
        lingered: the seconds for which others of its processes were there after it.
    """

    code: int | None
    stdout: str
    stderr: str
    seconds: float
    orphans: int
    lingered: float = 0


def report_of(outcome: Outcome) -> dict[str, Any]:
    """A worker's line of JSON; nothing without one."""
    lines = [line for line in outcome.stdout.splitlines() if line.startswith('{"times"')]
    report: dict[str, Any] = json.loads(lines[-1]) if lines else {}
    return report


def failure_of(outcome: Outcome, limit: float, line: int = 0) -> str:
    """Why a worker has nothing to report, or "".

    Args:
        limit: the seconds that it had.
        line: which line of its complaint says why: 0, the first, or -1, the last.
    """
    if outcome.code is None:
        return f"not done after {limit:g} s"
    if outcome.code or not report_of(outcome):
        words = (outcome.stderr or outcome.stdout).strip().splitlines()
        return f"exit {outcome.code}: {words[line][:200] if words else 'no message'}"
    return ""


def run_on(
    lab: Lab,
    host: str,
    command: list[str],
    env: dict[str, str],
    limit: float,
    grace: float = GRACE,
) -> Outcome:
    """Runs a command on a host; nothing of it, on any host, outlives this call.

    Args:
        host: where, as `h0`.
        env: its whole environment, PATH and HOME aside.
        grace: the seconds that what it has started has to end after it.
    """
    begin = time.monotonic()
    keep = {name: os.environ[name] for name in ("HOME", "LANG") if name in os.environ}
    # Should this process be killed, the launcher goes with it, and its ranks with the launcher.
    process = subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", str(lab.launcher), host, f"exec {shlex.join(command)}"],
        env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", **keep, **env},
        cwd=lab.folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        process_group=0,
    )
    try:
        stdout, stderr = process.communicate(timeout=limit)
        seconds = time.monotonic() - begin
        orphans, lingered = _clear_late(lab, grace)
        return Outcome(process.returncode, stdout, stderr, seconds, orphans, lingered)
    except subprocess.TimeoutExpired:
        orphans = _kill(process, lab)
        stdout, stderr = process.communicate()
        return Outcome(None, stdout, stderr, time.monotonic() - begin, orphans)
    finally:
        if process.poll() is None:
            _kill(process, lab)


def _kill(process: subprocess.Popen[str], lab: Lab) -> int:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    return lab.clear()


def _clear_late(lab: Lab, grace: float) -> tuple[int, float]:
    """Kills what has not ended by itself some time after the job; their number, and that time."""
    begin = time.monotonic()
    while lab.left_over() and time.monotonic() < begin + grace:
        time.sleep(0.02)
    return lab.clear(), time.monotonic() - begin
