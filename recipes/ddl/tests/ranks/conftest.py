"""Starts real ranks: `mpiexec` and the ddl installed beside this interpreter.

TEST_MPIEXEC names another MPI's launcher, with its options, for a libddl that was built with it.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs"
BIN = Path(sys.executable).parent
MPIEXEC = shlex.split(os.environ.get("TEST_MPIEXEC", "")) or [str(BIN / "mpiexec")]

Result = subprocess.CompletedProcess[str]


# Of `launch` and `passes` below.
Launch = Callable[..., Result]


def environment(**variables: object) -> dict[str, str]:
    """This environment without what other tests may have set, plus `variables` that are not 0.

    Unbuffered, Python writes a line and its end apart, and lines of several ranks would mix.
    """
    env = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("DDL_") and name not in ("PYTHONPATH", "PYTHONUNBUFFERED")
    }
    return env | {name: str(value) for name, value in variables.items() if value}


def command(program: str, *arguments: str, n: int) -> list[str]:
    return [
        *(*MPIEXEC, "-n", str(n)),
        *(sys.executable, str(PROGRAMS / f"{program}.py"), *arguments),
    ]


@pytest.fixture
def launch() -> Launch:
    """Runs a program of programs/ on n ranks, on pretended hosts, with small chunks."""

    def run(
        program: str,
        *arguments: str,
        n: int,
        hosts: int = 0,
        chunk: int = 0,
        timeout: float = 0,
        env: dict[str, str] | None = None,
    ) -> Result:
        variables = environment(DDL_FAKE_HOSTS=hosts, DDL_SHM_CHUNK=chunk, DDL_TIMEOUT=timeout)
        variables["DDL_FAKE_SOCKETS"] = "1"  # whatever this machine has
        return subprocess.run(
            command(program, *arguments, n=n),
            env=variables | (env or {}),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    return run


@pytest.fixture
def passes(launch: Launch) -> Launch:
    """As `launch`, and the program must end well on every rank."""

    def run(program: str, *arguments: str, **options: object) -> Result:
        result = launch(program, *arguments, **options)
        assert result.returncode == 0, result.stdout + result.stderr
        return result

    return run
