"""Runs the real ddlrun: from the source tree beside these tests, else the installed one."""

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "python"
if SOURCE.is_dir():
    sys.path.insert(0, str(SOURCE))
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, [str(SOURCE), os.environ.get("PYTHONPATH")])
    )
DDLRUN = [sys.executable, "-m", "ddl.launch.cli"]

Result = subprocess.CompletedProcess[str]


@pytest.fixture
def ddlrun(tmp_path: Path) -> Callable[..., Result]:
    """Runs ddlrun with these words to its end."""

    def run(*words: str, stdin: str = "", env: dict[str, str] | None = None) -> Result:
        return subprocess.run(
            [*DDLRUN, *words],
            input=stdin,
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=os.environ | (env or {}),
            timeout=120,
            check=False,
        )

    return run


class Marked:
    """Finds the processes of one test: they carry its mark among their words."""

    def __init__(self) -> None:
        self.mark = f"mark-{uuid.uuid4().hex}"

    def processes(self, but_not: tuple[int, ...] = ()) -> dict[int, str]:
        found = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) not in (os.getpid(), *but_not):
                try:
                    words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                    dead = (entry / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
                except OSError:
                    continue
                if self.mark in words and not dead:
                    found[int(entry.name)] = words
        return found

    def wait_until(self, what: Callable[[dict[int, str]], bool], seconds: float = 20) -> bool:
        deadline = time.monotonic() + seconds
        while not what(self.processes()):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.1)
        return True

    def all_gone(self) -> bool:
        return self.wait_until(lambda found: not found)


@pytest.fixture
def marked() -> Iterator[Marked]:
    marked = Marked()
    yield marked
    left = {} if marked.all_gone() else marked.processes()  # they may be about to end
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 9)
    assert not left, f"these outlived the test: {left}"


def forget_ignored_signals() -> None:
    """nohup ignores one, and a shell two for what it starts with `&`; a child inherits that."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts ddlrun and leaves it running."""
    started: list[subprocess.Popen[str]] = []

    def run(*words: str, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
        started.append(
            subprocess.Popen(
                [*DDLRUN, *words],
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                cwd=tmp_path,
                preexec_fn=forget_ignored_signals,
            )
        )
        return started[-1]

    yield run
    for process in started:
        if process.poll() is None:
            process.terminate()
            process.wait(20)
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe:
                pipe.close()
