"""What the benchmarks' commands have in common: sizes, the JSON that they write, how they end."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.lab.namespaces import LabError

HERE = Path(__file__).parent


def asker(doc: str | None) -> argparse.ArgumentParser:
    """A command line without options yet, whose help shows a script's docstring as written."""
    return argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def parse_size(text: str) -> int:
    """Bytes, from 65536, 64K or 4M."""
    match = re.fullmatch(r"(\d+)([KM]?)", text)
    if not match or int(match[1]) == 0:
        raise argparse.ArgumentTypeError(f"{text} is not a size such as 64K or 4M")
    return int(match[1]) << {"": 0, "K": 10, "M": 20}[match[2]]


def ended_cpu_seconds() -> float:
    """Seconds of processors, user and system, of all commands that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@dataclass(frozen=True)
class Cost:
    """Seconds that a command takes.

    Attributes:
        processors: user and system, of it and all that it starts.
        wall: by the clock.
    """

    processors: float
    wall: float

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.processors + other.processors, self.wall + other.wall)


def timed(*command: str | Path, env: Mapping[str, str] | None = None) -> Cost:
    """Run a command; RuntimeError, with what it says, if it fails."""
    before, start = ended_cpu_seconds(), time.perf_counter()
    words = [*map(str, command)]
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {(done.stderr or done.stdout).strip()[-2000:]}")
    return Cost(ended_cpu_seconds() - before, time.perf_counter() - start)


def answer_of_ranks(
    command: Sequence[object], what: str, env: Mapping[str, str], limit: float = 600
) -> Any:
    """The JSON that rank 0 of a job prints.

    Args:
        command: starts the job, and ends when it does.
        what: the job, for the error.
        limit: seconds.

    Raises:
        RuntimeError: the job fails, takes longer, or prints none.
    """
    try:
        done = subprocess.run(
            [*map(str, command)],
            env=dict(env),
            capture_output=True,
            text=True,
            timeout=limit,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"{what} had not ended after {limit:g} s") from None
    answer = None if done.returncode else json_in(done.stdout)
    if answer is None:
        raise RuntimeError(f"{what} failed:\n{done.stdout}{done.stderr}")
    return answer


def json_in(text: str) -> Any:
    """The object of the first line that has one, whatever ddlrun says before it; or None."""
    lines = [line for line in text.splitlines() if '{"' in line]
    return json.loads(lines[0][lines[0].index('{"') :]) if lines else None


def machine() -> dict[str, object]:
    """What it was measured on."""
    found = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    processor = found[1] if found else platform.machine()
    return {"processor": processor, "cpus": os.cpu_count(), "kernel": platform.release()}


def commit() -> str:
    """What of this tree was measured; libddl may come from elsewhere."""
    command = ["git", "-C", str(HERE), "describe", "--always", "--dirty"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def write_report(out: Path, options: argparse.Namespace, **found: object) -> None:
    """Writes what was found as JSON, with when, where and how, and says so."""
    out.parent.mkdir(parents=True, exist_ok=True)
    date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    head = {"date": date, "commit": commit(), "machine": machine(), "options": vars(options)}
    out.write_text(json.dumps({**head, **found}, indent=1, default=str) + "\n")
    print(f"written: {out}")


def end(missed: list[str]) -> None:
    """Ends with 1 and a line for each row that falls short of its bar, if there are any."""
    if missed:
        sys.exit("\n".join(["falls short:", *missed]))


def run_command(main: Callable[[], None]) -> None:
    """Runs a command: what is wrong is one line, and an interrupt is 130."""
    try:
        main()
    except (LabError, RuntimeError, ValueError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
