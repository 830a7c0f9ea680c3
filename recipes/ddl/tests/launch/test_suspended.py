"""A job whose processes are stopped and go on, as by `scontrol suspend`, goes on as it was."""

import os
import signal
import subprocess
import time
from collections.abc import Callable

import pytest
from ddl.launch.processes import table
from programs import ranks
from test_signals import start_two

from conftest import Marked

Start = Callable[..., subprocess.Popen[str]]

# Two seconds in which it is not stopped.
WORK = "say('up')\nfor _ in range(20): time.sleep(0.1)\nprint('done', rank)"


def tree(root: int) -> list[int]:
    """The process and all below it, from the top down."""
    known, found = table(), [root]
    for pid in found:
        found += [child for child, (parent, _) in known.items() if parent == pid]
    return found


@pytest.mark.parametrize("stop_order", [1, -1])
@pytest.mark.parametrize("continue_order", [1, -1])
def test_all_of_a_job_is_stopped_and_goes_on(
    start: Start, marked: Marked, stop_order: int, continue_order: int
) -> None:
    """For longer than a rank may be stopped, and than -timeout says."""
    process = start_two(start, marked, WORK, "-timeout", "6", "-x", "DDL_TIMEOUT=3")
    job = tree(process.pid)
    assert len(job) >= 7  # ddlrun, mpiexec, its proxy; two wrappers and two programs
    for pid in job[::stop_order]:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(7)
    for pid in job[::continue_order]:
        os.kill(pid, signal.SIGCONT)
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert sorted(out.splitlines()) == ["[0@localhost] done 0", "[1@localhost] done 1"]
    assert "Error" not in errors


def test_the_time_to_save_is_counted_while_awake(start: Start, marked: Marked) -> None:
    code = (
        "def save(*_):\n    for _ in range(20): time.sleep(0.1)\n"
        "    say('saved', rank); os._exit(0)\n"
        "signal.signal(signal.SIGTERM, save)\nsay('up')\nwhile True: time.sleep(1)"
    )
    process = start_two(start, marked, code, "-grace", "5")
    job = tree(process.pid)
    process.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    for pid in job:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(8)
    for pid in job:
        os.kill(pid, signal.SIGCONT)
    out, _ = process.communicate(timeout=60)
    assert sorted(out.splitlines()) == ["[0@localhost] saved 0", "[1@localhost] saved 1"]


def test_a_rank_alone_that_is_stopped_twice(start: Start, marked: Marked) -> None:
    code = (
        "print(os.getpid(), flush=True)\n"
        "for _ in range(2):\n"
        "    os.kill(os.getpid(), signal.SIGSTOP); print('on', flush=True); time.sleep(1)"
    )
    process = start(*ranks(marked, code))
    assert process.stdout
    assert process.stderr
    pid = int(process.stdout.readline().split()[-1])
    for _ in range(2):
        assert "was stopped" in process.stderr.readline()
        os.kill(pid, signal.SIGCONT)
        assert process.stdout.readline() == "[0@localhost] on\n"
        assert "goes on" in process.stderr.readline()
    assert process.wait(60) == 0
