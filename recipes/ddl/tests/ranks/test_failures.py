"""What goes wrong on one rank is told on the others: never a hang, never a wrong sum."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from conftest import BIN, PROGRAMS, Launch, Result, command, environment

# Far above what any of this takes: only a hang reaches it.
LONG = 100.0
KILL = ("survive", str(PROGRAMS / "lose.py"), "kill")


def seldom(*values: object) -> object:
    """A case for `make test-full`: most of these tests is waiting, or starting ranks."""
    return pytest.param(*values, marks=pytest.mark.slow)


def reports(output: str) -> dict[int, str]:
    return {int(rank): text for rank, text in re.findall(r"^rank (\d): (.*)$", output, re.M)}


@pytest.mark.parametrize("collective", ["small", "allreduce", "broadcast", "barrier"])
@pytest.mark.parametrize("n", [seldom(2), 4])
def test_a_killed_rank_on_this_host_is_noticed_at_once(
    launch: Launch, tmp_path: Path, n: int, collective: str
) -> None:
    result = launch(*KILL, collective, n=n, timeout=LONG, env={"SURVIVE": str(tmp_path)})
    told = reports(result.stdout)
    assert set(told) == set(range(n - 1)), result.stdout + result.stderr
    for text in told.values():
        assert re.search(rf"rank {n - 1} \(host \S+\) has died \(process \d+\)", text), text
        assert text.startswith("PEER_LOST")
    assert result.stdout.count("unusable since an earlier error") == n - 1
    assert result.returncode != 0


@pytest.mark.parametrize(("n", "hosts"), [(2, 2), (4, 3), (6, 6), seldom(6, 3)])
def test_a_killed_rank_on_another_host_is_named_by_all(
    launch: Launch, tmp_path: Path, n: int, hosts: int
) -> None:
    result = launch(*KILL, "allreduce", n=n, hosts=hosts, timeout=3, env={"SURVIVE": str(tmp_path)})
    told = reports(result.stdout)
    assert set(told) == set(range(n - 1)), result.stdout + result.stderr
    for text in told.values():
        assert f"rank {n - 1} (host" in text, told
        assert text.split()[0] in ("TIMEOUT", "PEER_LOST", "MPI"), told
        assert text.count("gave up") <= 1, told


def tell_of_a_stuck_rank(folder: Path, *words: str, n: int, **variables: object) -> dict[int, str]:
    """Stop the last rank for good; return what the others report."""
    job = subprocess.Popen(
        command("survive", str(PROGRAMS / "lose.py"), "stop", "allreduce", *words, n=n),
        env=environment(SURVIVE=folder, **variables),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert job.stdout is not None
    told: dict[int, str] = {}
    stuck = 0
    try:
        for line in job.stdout:
            told |= reports(line)
            stuck = int(line.split()[1]) if line.startswith("pid ") else stuck
            if len(told) == n - 1 and stuck:
                break
    finally:
        if stuck:
            os.kill(stuck, signal.SIGKILL)
        job.wait(60)
    return told


@pytest.mark.parametrize(
    ("n", "hosts"), [(4, 0), (4, 2), (6, 6), seldom(2, 0), seldom(2, 2), seldom(6, 3)]
)
def test_a_stuck_rank_is_named_after_the_timeout(tmp_path: Path, n: int, hosts: int) -> None:
    told = tell_of_a_stuck_rank(tmp_path, n=n, DDL_TIMEOUT=2, DDL_FAKE_HOSTS=hosts)
    assert len(told) == n - 1
    for text in told.values():
        assert text.startswith("TIMEOUT"), text
        assert f"rank {n - 1} (host" in text
        assert "DDL_TIMEOUT" in text


@pytest.mark.parametrize("hosts", [0, 2])
def test_time_in_which_the_ranks_are_stopped_is_not_waited(hosts: int) -> None:
    """A batch system suspends a job; the clocks run on."""
    with subprocess.Popen(
        command("late", "3", n=2),
        env=environment(DDL_TIMEOUT=8, DDL_FAKE_HOSTS=hosts),
        stdout=subprocess.PIPE,
        text=True,
    ) as job:
        assert job.stdout
        ranks = [int(job.stdout.readline().split()[-1]) for _ in range(2)]
        time.sleep(1)
        for rank in ranks:
            os.kill(rank, signal.SIGSTOP)
        time.sleep(9)
        for rank in ranks:
            os.kill(rank, signal.SIGCONT)
        assert job.wait(60) == 0


def test_strangers_and_slow_ranks_do_no_harm(passes: Launch) -> None:
    """Datagrams of others at the ports where ranks ask each other, and a rank that is late."""
    passes("strangers", n=4, hosts=2, timeout=3)


def test_a_rank_that_gives_up_tells_the_others_why(tmp_path: Path) -> None:
    told = tell_of_a_stuck_rank(tmp_path, "impatient", n=3, DDL_TIMEOUT=LONG)
    assert re.match(r"TIMEOUT after \S+ s: rank 2 \(host \S+\) did not arrive", told[0])
    assert re.match(
        r"TIMEOUT after \S+ s: rank 0 \(host \S+\) gave up: rank 2 \(host \S+\) did not", told[1]
    )


@pytest.mark.parametrize("n", [2, 4])
def test_a_rank_that_leaves_early_is_named(launch: Launch, n: int) -> None:
    result = launch("lose", "exit", "allreduce", n=n, timeout=LONG)
    told = reports(result.stdout)
    assert set(told) == set(range(n - 1)), result.stdout + result.stderr
    for text in told.values():
        assert text.startswith("MISMATCH")
        assert f"rank {n - 1} (host" in text
        assert "finalize()" in text
    assert result.returncode != 0


@pytest.mark.parametrize(("n", "hosts"), [(2, 0), (4, 3)])
def test_an_uncaught_exception_ends_the_job(launch: Launch, n: int, hosts: int) -> None:
    result = launch("lose", "raise", "allreduce", n=n, hosts=hosts, timeout=LONG)
    assert result.returncode == 1
    assert "ZeroDivisionError: the lost rank's own mistake" in result.stderr
    assert re.search(rf"\[ddl\] rank {n - 1} \(host \S+\) ends the job: uncaught", result.stderr)


@pytest.mark.parametrize("catcher", ["console", "console with hook", "pytest"])
def test_an_exception_that_was_caught_ends_nothing(passes: Launch, catcher: str) -> None:
    packages = str(Path(pytest.__file__).parents[1])  # an environment need not have pytest
    done = passes("expected_errors", catcher, packages, n=2, timeout=LONG)
    assert done.stdout.count("ended well") == 2


def test_an_uncaught_exception_ends_the_job_whatever_shows_it(launch: Launch) -> None:
    result = launch("expected_errors", "uncaught", n=2, timeout=LONG)
    assert result.returncode == 1
    assert "the program's own hook" in result.stdout
    assert "ends the job: uncaught ZeroDivisionError: division by zero" in result.stderr


def tell_of_a_meeting(
    launch: Launch, folder: Path, how: str, odd: int, hosts: int = 0
) -> tuple[list[str], Result]:
    """What three ranks say of the start, or of a group, where `odd` comes late or with others."""
    told = folder / "told"
    told.mkdir()
    (folder / "ended").mkdir()
    words = ("survive", str(PROGRAMS / "meet.py"), how, str(odd), str(told))
    env = {"SURVIVE": str(folder / "ended"), "DDL_TIMEOUT": "1"}
    result = launch(*words, n=3, hosts=hosts, env=env)
    assert len(list(told.iterdir())) == 3, result.stderr
    return [(told / str(rank)).read_text() for rank in range(3)], result


@pytest.mark.parametrize("odd", [0, 2])
@pytest.mark.parametrize(
    ("how", "own", "theirs"),
    [
        ("bad option", "unknown word '-speed'", r"rank {odd}: DDL options: unknown word '-speed'"),
        ("mode", *[r"rank 0 has .* -mode .*, but rank [12] has .* -mode "] * 2),
        ("topology", *[r"rank 0 has .* -topology .*, but rank [12] has .* -topology"] * 2),
    ],
)
def test_ranks_that_start_differently_are_named_by_all(
    launch: Launch, tmp_path: Path, how: str, own: str, theirs: str, odd: int
) -> None:
    told, result = tell_of_a_meeting(launch, tmp_path, how, odd)
    assert result.returncode == 0, result.stderr  # MPI has been ended
    for rank, text in enumerate(told):
        assert re.search(own if rank == odd else theirs.format(odd=odd), text), text


@pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="needs mpi4py")
@pytest.mark.parametrize("odd", [0, 2])
def test_a_rank_that_does_not_start_the_library_is_named(
    launch: Launch, tmp_path: Path, odd: int
) -> None:
    told, _ = tell_of_a_meeting(launch, tmp_path, "late for the library", odd)
    for rank, text in enumerate(told):
        assert re.match(r"(TIMEOUT|PEER_LOST): .*no answer within 1 s from rank ", text), text
        assert rank == odd or f"from rank {odd};" in text


@pytest.mark.parametrize(("odd", "hosts"), [(0, 3), (2, 0), seldom(0, 0), seldom(2, 3)])
def test_a_rank_that_does_not_come_to_a_group_is_named(
    launch: Launch, tmp_path: Path, odd: int, hosts: int
) -> None:
    told, _ = tell_of_a_meeting(launch, tmp_path, "group", odd, hosts)
    for text in told:  # and it is told itself
        assert re.match(rf"TIMEOUT: .*no answer within 1 s from rank {odd} \(host \S+\); ", text), (
            told
        )


def test_groups_of_different_ranks_are_told(launch: Launch, tmp_path: Path) -> None:
    (first, other, last), _ = tell_of_a_meeting(launch, tmp_path, "group of others", 2)
    assert other == "no error"
    for text in (first, last):
        assert re.search(r"rank 0 .* of 2 ranks: 0 2, but rank 2 .* of 3 ranks: 0 1 2", text), text


def test_groups_in_different_order_are_told(launch: Launch, tmp_path: Path) -> None:
    told, result = tell_of_a_meeting(launch, tmp_path, "group in another order", 1)
    assert result.returncode == 0, result.stderr
    for text in told:
        assert re.search(r"rank 0 .* ranks: 0 1 2, but rank 1 .* ranks: 2 1 0", text), text


def test_what_waits_inside_mpi_says_so(launch: Launch, tmp_path: Path) -> None:
    told, result = tell_of_a_meeting(launch, tmp_path, "late for MPI", 2)
    assert told == ["no error"] * 3
    said = r"\[ddl\] process \d+ on host \S+ has been in MPI_Init for 1 s"
    assert re.search(said, result.stderr), result.stderr


def test_a_killed_job_leaves_nothing_behind() -> None:
    """kill -9 of every process while the shared memory is in use, ours and MPICH's."""
    ddlrun = [str(BIN / "ddlrun"), "-np", "2"]
    job = subprocess.Popen(
        ddlrun + command("lose", "stop", "allreduce", n=2)[3:],
        env=environment(DDL_TIMEOUT=LONG),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert job.stdout is not None
    first = job.stdout.readline().split()
    time.sleep(0.2)
    ours = _with_descendants(job.pid)
    assert int(first[-1]) in ours
    names = {name for pid in ours for name in _shared_memory(pid)}
    for pid in ours:
        with contextlib.suppress(ProcessLookupError):  # it went with its parent
            os.kill(pid, signal.SIGKILL)
    job.wait(60)
    deadline = time.monotonic() + 20
    while (left := {name for name in names if Path(name).exists()}) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left


def _shared_memory(pid: int) -> list[str]:
    """What the process has mapped of /dev/shm."""
    return re.findall(r"/dev/shm/\S+$", Path(f"/proc/{pid}/maps").read_text(), re.M)


def _with_descendants(pid: int) -> list[int]:
    found = [pid]
    for parent in found:
        for task in Path(f"/proc/{parent}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return found


@pytest.mark.parametrize(
    "way",
    [
        "explicit",
        "at exit",
        "rank 0 goes on alone",
        "by DDL_OPTIONS",
        "not at all",
        "again",
        "bad options, then good",
        "fork",
        "trace",
    ],
)
@pytest.mark.parametrize("n", [1, 2])
def test_starting_and_ending(passes: Launch, way: str, n: int) -> None:
    result = passes("endings", way, n=n)
    assert result.stdout.count("ended well") == n
    if way == "trace":
        assert re.search(rf"\[ddl\] {n} ranks on 1 hosts", result.stderr)
        assert re.search(r"allreduce\(1 x int32, sum\) took [\d.]+ us", result.stderr)


@pytest.mark.parametrize("how", ["exit", "exit of C", "exception", "asks", "communicates"])
def test_a_forked_process_ends_for_itself(passes: Launch, how: str) -> None:
    assert passes("forked", how, n=2, timeout=LONG).stdout.count("ended well") == 2


@pytest.mark.parametrize(("n", "hosts"), [(1, 0), (2, 0), (4, 2), (5, 3)])
def test_sizes_that_differ_are_told_before_a_byte_moves(passes: Launch, n: int, hosts: int) -> None:
    assert passes("sizes", n=n, hosts=hosts).stdout.count("ended well") == n


@pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="needs mpi4py")
@pytest.mark.parametrize("way", ["mpi4py first", "mpi4py, at exit", "mpi4py ended"])
def test_beside_mpi4py(passes: Launch, way: str) -> None:
    assert passes("endings", way, n=2).stdout.count("ended well") == 2


@pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="needs mpi4py")
@pytest.mark.parametrize("way", ["again", "freed late", "beside messages"])
def test_communicators_of_a_program_that_began_mpi(passes: Launch, way: str) -> None:
    assert passes("mpi_programs", way, n=2).stdout.count("ended well") == 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("-speed 3", ["'-speed'", "-mode X:AxBxC", "-timeout", "-rebind_iter"]),
        ("-mode", ["-mode needs a value"]),
        ("-mode z:2", ["X one of b n r m c p", "z:2"]),
        ("-mode r:2x", ["sizes separated by x"]),
        ("-mode r:2xa", ["'a'"]),
        ("-mode r:3x1x1", ["describes 3 ranks", "the job has 2"]),
        ("-timeout 0", ["-timeout", "above 0"]),
        ("-dbg_level 3", ["0 to 2"]),
        ("-deterministic 2", ["-deterministic", "0 to 1"]),
        ("-fusion_bytes 1M", ["-fusion_bytes", "whole number from 0", "'1M'"]),
        ("-fusion_wait 2000", ["-fusion_wait", "milliseconds from 0 to 1000", "'2000'"]),
    ],
)
def test_bad_options_are_told(launch: Launch, options: str, words: list[str]) -> None:
    result = launch("endings", "by variable", n=2, env={"DDL_OPTIONS": options})
    assert result.returncode != 0
    for word in words:
        assert word in result.stderr
    assert "Segmentation" not in result.stderr


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("DDL_TIMEOUT", "soon"),
        ("DDL_SHM_CHUNK", "1"),
        ("DDL_FAKE_HOSTS", "x"),
        ("DDL_FAKE_SOCKETS", "x"),
        ("DDL_FAKE_FAR", "2"),
        ("DDL_FUSION_BYTES", "-1"),
        ("DDL_FUSION_WAIT", "soon"),
    ],
)
def test_bad_variables_are_told(launch: Launch, variable: str, value: str) -> None:
    result = launch("endings", "explicit", n=1, env={variable: value})
    assert result.returncode != 0
    assert f"{variable}: expected" in result.stderr


@pytest.mark.parametrize("mode", ["r:2x1x1", "p:1x2x1x1", "b:2"])
def test_a_mode_that_fits_is_taken(passes: Launch, mode: str) -> None:
    passes("endings", "explicit", n=2, env={"DDL_OPTIONS": f"-mode {mode}"})


@pytest.mark.parametrize("n", [1, 2])
def test_bad_arguments(passes: Launch, n: int) -> None:
    passes("arguments", n=n)


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
def test_bad_tensors(passes: Launch) -> None:
    passes("arguments", "torch", n=2)
