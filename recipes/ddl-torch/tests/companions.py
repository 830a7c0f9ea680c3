"""Ranks of tests with companions, each a process of `companion_rank.py`, and what they leave."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

PROGRAM = Path(__file__).with_name("companion_rank.py")
#: Messages by TCP between ranks that take themselves for hosts; MPICH's UCX crashes with a peer.
HOSTS = {"DDL_FAKE_HOSTS": "8", "MPIR_CVAR_NOLOCAL": "1", "UCX_TLS": "tcp,self"}
HANG = 240.0  # seconds that no answer takes, even on a busy machine, nor an end


class Rank:
    """A process of `companion_rank.py`."""

    def __init__(
        self,
        address: str,
        seconds: float,
        environment: dict[str, str],
        before: Sequence[str] = (),
    ) -> None:
        self.process = subprocess.Popen(
            [*before, sys.executable, str(PROGRAM), address, str(seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | environment,
        )

    def tell(self, words: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(words + "\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        """The answer to the word that it was told."""
        assert self.process.stdout
        is_there = select.select([self.process.stdout], [], [], HANG)[0]
        assert is_there, f"rank {self.process.pid} hangs"
        return self.process.stdout.readline().strip()

    def ask(self, words: str) -> str:
        self.tell(words)
        return self.hear()


def ask_all(ranks: list[Rank], words: str) -> list[str]:
    """Their answers to the words, with each rank's number for '#' and how many they are for '%'."""
    for number, rank in enumerate(ranks):
        rank.tell(words.replace("#", str(number)).replace("%", str(len(ranks))))
    return [rank.hear() for rank in ranks]


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + HANG
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def descendants(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):  # it has ended
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += [int(child), *descendants(int(child))]
    return found


def shared_files(pids: Iterable[int]) -> set[Path]:
    """The files of /dev/shm that processes have mapped."""
    found: set[Path] = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
            found.update(Path(line.split()[5]) for line in lines if " /dev/shm/" in line)
    return found


def is_alive(pid: int) -> bool:
    """Whether it is one of ours that lives: the number may be another's by now."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z" and b"companion" in words
