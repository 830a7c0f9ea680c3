"""Signals to ddlrun reach the ranks, and a rank that a signal stops does not hold up the rest."""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from programs import SLEEP, libmpi, ranks

from conftest import Marked

Start = Callable[..., subprocess.Popen[str]]


def start_two(start: Start, marked: Marked, code: str, *options: str) -> subprocess.Popen[str]:
    """Two ranks, both of which have said "up"."""
    process = start("-np", "2", *options, *ranks(marked, code))
    assert process.stdout
    said = {process.stdout.readline(), process.stdout.readline()}
    assert said == {"[0@localhost] up\n", "[1@localhost] up\n"}
    return process


@pytest.mark.parametrize(
    ("number", "status"),
    [
        *((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)),
        *((signal.SIGQUIT, 131), (signal.SIGXCPU, 152)),  # XCPU: of LSF and SGE
    ],
)
def test_signals_are_passed_on(
    start: Start, marked: Marked, number: signal.Signals, status: int
) -> None:
    code = (
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n"
        "try: say('up'); time.sleep(600)\n"
        "except KeyboardInterrupt: print('interrupted', rank)\n"
        "except SystemExit: print('terminated', rank)"
    )
    process = start_two(start, marked, code)
    process.send_signal(number)
    out, errors = process.communicate(timeout=60)
    assert process.returncode == status
    word = "interrupted" if number == signal.SIGINT else "terminated"
    assert sorted(out.splitlines()) == [f"[{n}@localhost] {word} {n}" for n in (0, 1)]
    assert errors.startswith(f"ddlrun: {number.name} (signal {number.value}): all ranks were ended")
    assert marked.all_gone()


@pytest.mark.parametrize(("grace", "saves"), [((), False), (("-grace", "60"), True)])
def test_the_time_to_save_after_sigterm(
    start: Start, marked: Marked, grace: tuple[str, ...], saves: bool
) -> None:
    """By itself a rank has two seconds; a large model takes longer."""
    code = (
        "def save(*_): time.sleep(7); print('saved', rank); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, save)\n"
        "say('up')\n"
        "while True: time.sleep(1)"
    )
    process = start_two(start, marked, code, *grace)
    process.send_signal(signal.SIGTERM)
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM, errors
    wanted = [f"[{n}@localhost] saved {n}" for n in (0, 1)] if saves else []
    assert sorted(out.splitlines()) == wanted
    assert marked.all_gone()


@pytest.mark.parametrize("name", ["SIGUSR1", "SIGUSR2"])
def test_a_signal_for_the_program_does_not_end_it(start: Start, marked: Marked, name: str) -> None:
    """Slurm's --signal, LSF's -W and submitit send one or the other, to have programs save."""
    code = (
        "got = []\n"
        "signal.signal(signal.SIGUSR1, lambda *_: got.append('SIGUSR1'))\n"
        "signal.signal(signal.SIGUSR2, lambda *_: got.append('SIGUSR2'))\n"
        "say('up')\n"
        "while not got: time.sleep(0.01)\n"
        "print('saved by', *got)"
    )
    process = start_two(start, marked, code)
    process.send_signal(signal.Signals[name])
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert sorted(out.splitlines()) == [f"[{n}@localhost] saved by {name}" for n in (0, 1)]
    assert marked.all_gone()


def test_a_signal_that_the_program_does_not_know_is_named(start: Start, marked: Marked) -> None:
    process = start_two(start, marked, "say('up'); " + SLEEP)
    process.send_signal(signal.SIGUSR2)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGUSR2
    assert "on localhost was killed by SIGUSR2 (signal 12)" in errors
    assert marked.all_gone()


def test_a_signal_before_the_ranks_are_there(start: Start, marked: Marked) -> None:
    """It is kept until it can be passed on: before that, mpiexec itself would be ended by it."""
    process = start("-np", "2", *ranks(marked, SLEEP))
    assert marked.wait_until(lambda found: any("mpiexec" in words for words in found.values()))
    process.send_signal(signal.SIGUSR1)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGUSR1
    assert "on localhost was killed by SIGUSR1 (signal 10)" in errors
    assert marked.all_gone()


@pytest.mark.parametrize("where", ["the program", "MPI_Init"])
def test_a_stopped_rank_ends_the_job(start: Start, marked: Marked, where: str) -> None:
    """The library's own timeout cannot help in MPI_Init, which waits for all without a limit."""
    stop = "os.kill(os.getpid(), signal.SIGSTOP)"
    if where == "MPI_Init":
        code = f"if rank: {stop}\nimport ctypes; ctypes.CDLL({libmpi()!r}).MPI_Init(None, None)"
    else:
        code = f"if rank: {stop}\n{SLEEP}"
    process = start("-np", "2", "-x", "DDL_TIMEOUT=2", *ranks(marked, code))
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGSTOP
    first, *_, last = [line for line in errors.splitlines() if "ddlrun: rank" in line]
    assert first.endswith(
        "rank 1 on localhost was stopped by SIGSTOP (signal 19); the others may wait for it."
    )
    assert "rank 1 on localhost was stopped by SIGSTOP (signal 19), did not go on" in last
    assert marked.all_gone()


def test_a_stopped_rank_may_go_on(start: Start, marked: Marked) -> None:
    code = "print(os.getpid(), flush=True); os.kill(os.getpid(), signal.SIGSTOP); print('well')"
    process = start("-x", "DDL_TIMEOUT=60", *ranks(marked, code))
    assert process.stdout
    assert process.stderr
    pid = int(process.stdout.readline().split()[-1])
    assert "was stopped" in process.stderr.readline()
    os.kill(pid, signal.SIGCONT)
    out, errors = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "[0@localhost] well\n")
    assert errors == "ddlrun: rank 0 on localhost goes on.\n"


def test_ctrl_c_while_hosts_are_asked(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before there is a job."""
    ssh = tmp_path / "ssh"
    ssh.write_text("#!/bin/sh\necho $$ > pid\nmv pid asked\nexec sleep 600\n")
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    process = start("-H", "far.invalid:2", "true")
    while not (tmp_path / "asked").exists():
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (128 + signal.SIGINT, "")
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "asked").read_text()), 0)


CATCH = """
import os, signal, sys, time
def save(number, frame):
    os.write(1, f"got {signal.Signals(number).name}\\n".encode())
    time.sleep(0.5)  # as who saves
    os.write(1, b"saved\\n")
    sys.exit(0)
for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(number, save)
os.write(1, b"up\\n")
while True:
    time.sleep(1)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2])
@pytest.mark.parametrize(
    "below",
    [
        *("timeout 100", "setsid -w", "setsid -w timeout 100"),  # in a process group of its own
        *("sh -c '\"$@\"; true' sh", "sh -c 'setsid -w \"$@\"; true' sh"),  # the shell ends at once
    ],
)
def test_a_program_below_another_one_can_save(
    start: Start, marked: Marked, below: str, number: signal.Signals
) -> None:
    """mpiexec's signals go to the group of the rank's first process."""
    program = [sys.executable, "-c", CATCH, marked.mark]
    process = start("-np", "2", *shlex.split(below), *program)
    assert process.stdout
    for _ in range(2):
        assert process.stdout.readline().endswith("] up\n")
    process.send_signal(number)
    out, _ = process.communicate(timeout=60)
    for rank in (0, 1):  # timeout itself sends it to its child, and then to the group
        assert f"[{rank}@localhost] got {number.name}\n" in out
    assert out.count("saved\n") == 2
    assert marked.all_gone()


# The signal is there before the wrapper looks, and the shell has died of it.
LATE = """
import ctypes, os, signal, sys
import ddl.launch, os.path
sys.path.append(os.path.dirname(ddl.launch.__file__))
import rank
ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER
number = int(sys.argv[1])
passed_on = signal.SIGQUIT if number == signal.SIGUSR2 else number
signals = {*map(signal.Signals, (1, 2, 3, 10, 15, 17))}
signal.pthread_sigmask(signal.SIG_BLOCK, signals)
reader, writer = os.pipe()
child = os.fork()
if not child:
    signal.pthread_sigmask(signal.SIG_SETMASK, set())
    os.dup2(writer, 1)
    os.execvp("sh", ["sh", "-c", 'setsid "$@" & wait', "sh", sys.executable, *sys.argv[2:]])
os.close(writer)
assert os.read(reader, 100) == b"up\\n"
os.kill(os.getpid(), passed_on)
os.kill(child, number)
os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
_, was_told = rank.wait(child, signals, os.getppid(), "", 20.0)
print(os.read(reader, 100).decode(), was_told)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2])
def test_a_shell_that_dies_of_a_signal_before_its_wrapper_has_seen_it(
    marked: Marked, number: signal.Signals
) -> None:
    words = [sys.executable, "-c", LATE, str(int(number)), "-c", CATCH, marked.mark]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"got {number.name}\nsaved\n {number == signal.SIGTERM}\n"
    assert marked.all_gone()
