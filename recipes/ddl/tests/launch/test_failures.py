"""Ranks that die, hang or will not end: the user learns which, and nothing outlives the run."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from programs import SLEEP, last_words, ranks

from conftest import Marked, Result

Run = Callable[..., Result]
Start = Callable[..., subprocess.Popen[str]]


def test_exit_code(ddlrun: Run, marked: Marked) -> None:
    code = "print('about to fail', file=sys.stderr); sys.exit(3)"
    result = ddlrun("-H", "localhost:2,127.0.0.1:2", *ranks(marked, SLEEP, SLEEP, code, SLEEP))
    assert result.returncode == 3
    words = last_words(result).splitlines()
    assert words[0].startswith("ddlrun: rank 2 on 127.0.0.1 ended with exit code 3 after ")
    assert words[0].endswith("; ended the other 3 running.")
    assert words[1:] == ["ddlrun:   the last lines of rank 2:", "ddlrun:     about to fail"]
    assert marked.all_gone()


@pytest.mark.parametrize("name", ["SIGKILL", "SIGSEGV", "SIGTERM", "SIGABRT"])
def test_signal(ddlrun: Run, marked: Marked, name: str) -> None:
    result = ddlrun(
        "-np", "3", *ranks(marked, SLEEP, f"os.kill(os.getpid(), signal.{name})", SLEEP)
    )
    number = signal.Signals[name].value
    assert result.returncode == 128 + number
    assert f"rank 1 on localhost was killed by {name} (signal {number})" in last_words(result)
    assert marked.all_gone()


def test_the_first_failure_counts_not_its_consequences(ddlrun: Run, marked: Marked) -> None:
    late = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(9)); " + SLEEP
    result = ddlrun("-np", "3", *ranks(marked, late, late, "time.sleep(1); sys.exit(5)"))
    assert result.returncode == 5
    assert last_words(result).startswith("ddlrun: rank 2 on localhost ended with exit code 5")


def test_ranks_get_time_to_end_by_themselves(ddlrun: Run, marked: Marked, tmp_path: Path) -> None:
    tidy = (
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n"
        "try: time.sleep(600)\n"
        "finally: time.sleep(1); open(f'tidy{rank}', 'w').close()"
    )
    wait = "time.sleep(1); sys.exit(1)"
    assert ddlrun("-np", "3", *ranks(marked, tidy, tidy, wait)).returncode == 1
    assert {path.name for path in tmp_path.iterdir()} == {"tidy0", "tidy1"}


def test_a_rank_that_will_not_end_is_killed(ddlrun: Run, marked: Marked) -> None:
    stubborn = "signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SLEEP
    result = ddlrun("-np", "2", *ranks(marked, stubborn, "time.sleep(1); sys.exit(4)"))
    assert result.returncode == 4
    assert marked.all_gone()


def test_a_rank_that_ends_well_may_end_early(ddlrun: Run, marked: Marked) -> None:
    result = ddlrun("-np", "2", *ranks(marked, "pass", "time.sleep(2); print('done')"))
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == "[1@localhost] done\n"


def test_timeout(ddlrun: Run, marked: Marked) -> None:
    result = ddlrun(
        *("-H", "localhost:2,127.0.0.1:1", "-timeout", "3"), *ranks(marked, SLEEP, "pass", SLEEP)
    )
    assert result.returncode == 124
    assert last_words(result) == (
        "ddlrun: timeout after 3 s; ended the ranks that were still running: "
        "rank 0 on localhost, rank 2 on 127.0.0.1\n"
    )
    assert marked.all_gone()


def wait_for_ranks(marked: Marked, ddlrun: int, count: int) -> dict[int, str]:
    """The programs themselves, without ddlrun, mpiexec and the wrappers."""

    def programs(found: dict[int, str]) -> dict[int, str]:
        return {
            pid: words
            for pid, words in found.items()
            if not any(part in words for part in ("ddl.launch", "mpiexec", "rank.py"))
        }

    assert marked.wait_until(lambda found: len(programs(found)) == count), marked.processes()
    return programs(marked.processes())


def test_killing_ddlrun_ends_everything(start: Start, marked: Marked) -> None:
    process = start("-np", "2", *ranks(marked, SLEEP))
    wait_for_ranks(marked, process.pid, 2)
    process.kill()
    process.wait()
    assert marked.all_gone()


@pytest.mark.parametrize("victim", ["bin/mpiexec", "rank.py"])
def test_killing_a_helper_ends_its_ranks(start: Start, marked: Marked, victim: str) -> None:
    process = start("-np", "2", *ranks(marked, SLEEP))
    wait_for_ranks(marked, process.pid, 2)
    for pid, words in marked.processes().items():
        first = words.split(marked.mark)[0]
        if victim in first and ("mpiexec" in first) == (victim == "bin/mpiexec"):
            with contextlib.suppress(ProcessLookupError):  # ended with the one before
                os.kill(pid, signal.SIGKILL)
    _, errors = process.communicate(timeout=60)
    assert process.returncode not in (0, None)
    (words,) = [line for line in errors.splitlines() if line.startswith("ddlrun: lost ")]
    assert "rank 0 on localhost" in words
    assert "rank 1 on localhost" in words
    assert marked.all_gone()


def test_the_killed_rank_is_named_and_not_who_noticed(
    ddlrun: Run, marked: Marked, tmp_path: Path
) -> None:
    """The others notice at once, and their wrappers may be quicker to tell."""
    notice = (
        "import socket; peer = socket.socket(socket.AF_UNIX); time.sleep(1)\n"
        "peer.connect('peer'); peer.recv(1); sys.exit(5)"
    )
    victim = (
        "import socket; server = socket.socket(socket.AF_UNIX); server.bind('peer')\n"
        "server.listen(); peers = [server.accept() for _ in range(3)]\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    for _ in range(3):
        result = ddlrun("-np", "4", *ranks(marked, notice, notice, victim, notice))
        assert result.returncode == 137, result.stderr
        assert last_words(result).startswith("ddlrun: rank 2 on localhost was killed by SIGKILL")
        (tmp_path / "peer").unlink()


def test_killing_hydras_proxy_ends_even_a_stubborn_rank(start: Start, marked: Marked) -> None:
    process = start(
        "-np", "1", *ranks(marked, "signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SLEEP)
    )
    wait_for_ranks(marked, process.pid, 1)
    wrapper = next(pid for pid, words in marked.processes().items() if "-S" in words.split()[:3])
    proxy = Path(f"/proc/{wrapper}/stat").read_text().rpartition(")")[2].split()[1]
    killed_at = time.monotonic()
    os.kill(int(proxy), signal.SIGKILL)
    process.communicate(timeout=60)
    assert process.returncode != 0
    assert time.monotonic() - killed_at < 15  # the wrapper does not wait for a proxy that is gone
    assert marked.all_gone()


@pytest.mark.parametrize("detach", ["", ", start_new_session=True"])
def test_what_a_rank_leaves_behind_is_ended(ddlrun: Run, marked: Marked, detach: str) -> None:
    """Even twice removed, detached, and holding on to our output."""
    words = ["tail", "-f", "/dev/null"]  # takes the mark as one more word, and never ends
    child = f"import subprocess, sys; subprocess.Popen([*{words}, sys.argv[1]])"
    code = (
        f"subprocess.Popen([sys.executable, '-c', {child!r}, sys.argv[1]]{detach}).wait(); "
        "print('leaving')"
    )
    result = ddlrun("-np", "2", *ranks(marked, code))
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("leaving") == 2
    assert marked.all_gone()
