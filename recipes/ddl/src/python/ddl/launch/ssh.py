"""Asks other hosts by ssh, before mpiexec starts anything there."""

import subprocess
from collections.abc import Sequence
from typing import NamedTuple

from ddl.launch.own import find_program

OPTIONS = ("-x", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10")
AT_ONCE = 32


class Answer(NamedTuple):
    """The answer of a host.

    Attributes:
        status: the exit status of the script; 255 where ssh itself has failed.
        output: what the script has printed.
        error: the last line of its errors, or of ssh's; "": none.
    """

    host: str
    status: int
    output: str
    error: str


def ask(hosts: Sequence[str], script: str) -> list[Answer]:
    """The answers of all hosts to a script of their shells, some hosts at a time."""
    return [
        answer
        for start in range(0, len(hosts), AT_ONCE)
        for answer in _ask_at_once(hosts[start : start + AT_ONCE], script)
    ]


def _ask_at_once(hosts: Sequence[str], script: str) -> list[Answer]:
    asked = [
        subprocess.Popen(
            [find_program("ssh") or "ssh", *OPTIONS, "--", host, script],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for host in hosts
    ]
    answers = []
    try:
        for host, process in zip(hosts, asked, strict=True):
            output, errors = (text.decode(errors="replace") for text in process.communicate())
            last = (errors.strip().splitlines() or [""])[-1]
            answers.append(Answer(host, process.returncode, output, last))
    finally:
        for process in asked:
            process.kill()  # at Ctrl-C; else it has ended
            process.wait()
    return answers
