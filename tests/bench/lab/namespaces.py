"""The lab's network namespaces, and the processes in them."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

SWITCH = "ddlsw"
NAMESPACES = Path("/run/netns")
PROCESS_TIMEOUT_S = 10.0
"""Seconds that a killed process has to go."""


class LabError(Exception):
    """The lab cannot be brought up here; the text says why and what to do."""


def run_lines(tool: str, namespace: str | None, lines: list[str]) -> None:
    """Runs lines of `ip` or `tc` in a namespace."""
    command = [tool, *(["-n", namespace] if namespace else []), "-batch", "-"]
    done = subprocess.run(
        command, input="\n".join(lines) + "\n", capture_output=True, text=True, check=False
    )
    if done.returncode:
        said = (done.stderr or done.stdout).strip()
        raise LabError(f"{' '.join(command)} failed (needs veth, bridge, sch_htb): {said}")


def namespaces() -> list[Path]:
    """The lab's namespaces, of this run or a killed one."""
    hosts = [path for path in NAMESPACES.glob("ddlh*") if path.name[4:].isdigit()]
    return [path for path in (*hosts, NAMESPACES / SWITCH) if path.exists()]


def processes(namespaces: list[Path]) -> list[int]:
    """The processes in these network namespaces."""
    inodes = {path.stat().st_ino for path in namespaces}
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):  # it has ended
                if (folder / "ns" / "net").stat().st_ino in inodes:
                    found.append(int(folder.name))
    return found


def wait_until(what: Callable[[], object], seconds: float, pause: float = 0.01) -> bool:
    """Whether it came true in time."""
    end = time.monotonic() + seconds
    while not what():
        if time.monotonic() > end:
            return False
        time.sleep(pause)
    return True


def kill_all(namespaces: list[Path], spare: set[int]) -> int:
    """Kills every process in the namespaces, and waits until they are gone."""
    seen: set[int] = set()
    end = time.monotonic() + PROCESS_TIMEOUT_S
    while alive := set(processes(namespaces)) - spare:
        if time.monotonic() > end:
            raise LabError(f"process {min(alive)} in the lab does not end when killed")
        for pid in alive:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        seen |= alive
        time.sleep(0.01)
    return len(seen)
