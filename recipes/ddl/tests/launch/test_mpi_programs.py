"""MPI programs that end well, fail or abort: mpiexec has a mind of its own about those."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from programs import last_words, mpi

from conftest import Marked, Result

Run = Callable[..., Result]


def test_mpi_success(ddlrun: Run, marked: Marked) -> None:
    result = ddlrun("-np", "3", *mpi(marked, "print(rank.value)"))
    assert result.returncode == 0, result.stderr
    assert sorted(result.stdout.splitlines()) == [f"[{n}@localhost] {n}" for n in range(3)]


def test_mpi_over_tcp(ddlrun: Run, marked: Marked) -> None:
    result = ddlrun("-tcp", "-H", "localhost:1,127.0.0.1:1", *mpi(marked, "print(rank.value)"))
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    ("code", "status", "verdict"),
    [
        ("sys.exit(3)", 3, "ended with exit code 3"),
        ("import os; os.kill(os.getpid(), 11)", 139, "was killed by SIGSEGV (signal 11)"),
        ("import os; os.kill(os.getpid(), 9)", 137, "was killed by SIGKILL (signal 9)"),
    ],
)
def test_mpi_failure(ddlrun: Run, marked: Marked, code: str, status: int, verdict: str) -> None:
    result = ddlrun("-np", "3", *mpi(marked, f"if rank.value == 1: {code}"))
    assert result.returncode == status
    assert last_words(result).startswith(f"ddlrun: rank 1 on localhost {verdict} after ")
    assert "BAD TERMINATION" not in result.stderr
    assert marked.all_gone()


def test_mpi_abort(ddlrun: Run, marked: Marked) -> None:
    """Hydra's proxies pass on what ranks have written before mpiexec ends the job."""
    for _ in range(5):
        result = ddlrun("-np", "3", *mpi(marked, "if rank.value == 1: mpi.MPI_Abort(WORLD, 7)"))
        assert result.returncode == 7
        assert "BAD TERMINATION" not in result.stderr
        assert marked.all_gone()
        words = last_words(result)
        assert words.startswith("ddlrun: rank 1 on localhost called MPI_Abort after "), words


def test_mpi_ranks_too_get_time_to_end(ddlrun: Run, marked: Marked, tmp_path: Path) -> None:
    """Hydra would kill them as soon as the failed rank's wrapper ends."""
    code = (
        "import signal, time\n"
        "if rank.value == 1: time.sleep(1); sys.exit(3)\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n"
        "try: time.sleep(600)\n"
        "finally: time.sleep(1); open('tidy', 'w').close()"
    )
    assert ddlrun("-np", "2", *mpi(marked, code)).returncode == 3
    assert (tmp_path / "tidy").exists()


INSTALLED = {"PYTHONPATH": ""}  # the sources have no compiled library beside them
ABORT = (
    "import ddl, time; ddl.init()\nif ddl.rank() == 1: ddl.abort('boom', {code})\ntime.sleep(60)"
)


@pytest.mark.parametrize(("code", "status"), [(7, 7), (0, 1), (256, 1)])
def test_ddl_abort(ddlrun: Run, marked: Marked, code: int, status: int) -> None:
    """It exits, and ddlrun ends the others."""
    program = [sys.executable, "-c", ABORT.format(code=code), marked.mark]
    result = ddlrun("-np", "3", *program, env=INSTALLED)
    assert result.returncode == status, result.stderr
    verdict = f"ddlrun: rank 1 on localhost ended with exit code {status} after "
    assert last_words(result).startswith(verdict)
    assert "ends the job: boom" in result.stderr
    assert marked.all_gone()


def test_ddl_abort_below_a_script(ddlrun: Run, marked: Marked) -> None:
    """Which goes on when its python ends: then it has to be MPI_Abort."""
    script = '"$@"; sleep 60'
    program = ["bash", "-c", script, marked.mark, sys.executable, "-c", ABORT.format(code=7)]
    result = ddlrun("-np", "2", "-timeout", "40", *program, env=INSTALLED)
    assert result.returncode not in (0, 124), result.stderr
    assert marked.all_gone()
