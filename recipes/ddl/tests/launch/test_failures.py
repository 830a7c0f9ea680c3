"""Ranks that die, hang or will not end: the user learns which, and nothing outlives the run."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import Marked, Result

Run = Callable[..., Result]
Start = Callable[..., subprocess.Popen[str]]

# Every rank runs this: argv is the mark and one piece of code per rank; the last also for the rest.
RANKS = """
import os, signal, subprocess, sys, time
rank = int(os.environ["RANK"])
exec(sys.argv[2:][min(rank, len(sys.argv) - 3)])
"""
SLEEP = "time.sleep(600)"


def ranks(marked: Marked, *codes: str) -> list[str]:
    return [sys.executable, "-c", RANKS, marked.mark, *codes]


def last_words(result: Result) -> str:
    """From ddlrun's verdict to the end."""
    start = result.stderr.index("ddlrun: ")
    words = result.stderr[start:]
    assert all(line.startswith("ddlrun: ") for line in words.splitlines()), words
    return words


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


def start_two(start: Start, marked: Marked, code: str) -> subprocess.Popen[str]:
    """Two ranks, both of which have said "up"."""
    process = start("-np", "2", *ranks(marked, code))
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
        "try: print('up', flush=True); time.sleep(600)\n"
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


@pytest.mark.parametrize("name", ["SIGUSR1", "SIGUSR2"])
def test_a_signal_for_the_program_does_not_end_it(start: Start, marked: Marked, name: str) -> None:
    """Slurm's --signal, LSF's -W and submitit send one or the other, to have programs save."""
    code = (
        "got = []\n"
        "signal.signal(signal.SIGUSR1, lambda *_: got.append('SIGUSR1'))\n"
        "signal.signal(signal.SIGUSR2, lambda *_: got.append('SIGUSR2'))\n"
        "print('up', flush=True)\n"
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
    process = start_two(start, marked, "print('up', flush=True); " + SLEEP)
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


# -- MPI programs: mpiexec has a mind of its own about those ---------------------------------------

MPI = """
import ctypes, sys
mpi = ctypes.CDLL(sys.argv[1])
WORLD = 0x44000000  # MPICH's MPI_COMM_WORLD
mpi.MPI_Init(None, None)
rank = ctypes.c_int()
mpi.MPI_Comm_rank(WORLD, ctypes.byref(rank))
exec(sys.argv[3])
mpi.MPI_Barrier(WORLD)
mpi.MPI_Finalize()
"""


def libmpi() -> str:
    for folder in (Path(sys.executable).parents[1] / "lib", Path(sys.prefix) / "lib"):
        found = list(folder.glob("libmpi.so*"))
        if found:  # pip's wheel has stubs in place of links
            return str(max(found, key=lambda path: path.stat().st_size))
    pytest.skip("no libmpi.so beside this python")


def mpi(marked: Marked, code: str) -> list[str]:
    return [sys.executable, "-c", MPI, libmpi(), marked.mark, code]


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
    """Hydra may end a job before it has passed on the rank's last line; then nobody knows which."""
    for _ in range(5):
        result = ddlrun("-np", "3", *mpi(marked, "if rank.value == 1: mpi.MPI_Abort(WORLD, 7)"))
        assert result.returncode == 7
        assert "BAD TERMINATION" not in result.stderr
        assert marked.all_gone()
        words = last_words(result)
        if words.startswith("ddlrun: rank 1 on localhost called MPI_Abort after "):
            return
        assert "gone without a word (MPI_Abort, or killed?)" in words
    pytest.fail(f"of five aborts none was traced to its rank: {words}")


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
    """It exits, and ddlrun ends the others: MPI_Abort would now and then take the reason along."""
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
