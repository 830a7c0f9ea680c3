"""-keep_going: a job that goes on without the ranks that it loses."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from programs import SLEEP, mpi, ranks

from conftest import Marked, Result

Run = Callable[..., Result]
Start = Callable[..., subprocess.Popen[str]]

KILL = "os.kill(os.getpid(), signal.SIGKILL)"
DONE = "time.sleep(3); say('done')"


def test_the_others_go_on_without_a_killed_rank(ddlrun: Run, marked: Marked) -> None:
    result = ddlrun("-keep_going", "-np", "3", *ranks(marked, DONE, KILL, DONE))
    assert result.returncode == 0, result.stderr
    assert sorted(result.stdout.splitlines()) == ["[0@localhost] done", "[2@localhost] done"]
    (line,) = result.stderr.splitlines()
    assert line.startswith(
        "ddlrun: lost rank 1 on localhost, which was killed by SIGKILL (signal 9) after "
    )
    assert line.endswith(" s; 2 ranks are left: the job goes on.")
    assert marked.all_gone()


def test_rank_0_is_no_more_than_another(ddlrun: Run, marked: Marked) -> None:
    """Its input ends, and that is nobody's end."""
    result = ddlrun(
        "-keep_going", "-np", "3", *ranks(marked, "sys.exit(7)", DONE), stdin="much\n" * 100_000
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("done") == 2
    assert "lost rank 0 on localhost, which ended with exit code 7 after " in result.stderr


def test_rank_0_is_lost_while_input_is_under_way(start: Start, marked: Marked) -> None:
    """The proxy must not have any for a rank whose wrapper is gone; it came to 1 job in 4."""
    reads = "[sys.stdin.readline() for _ in range(200)]; os._exit(7)"
    for _ in range(6):
        process = start(
            *("-keep_going", "-np", "2"),
            *ranks(marked, reads, "time.sleep(2); say('done')"),
            stdin=subprocess.PIPE,
        )
        assert process.stdin
        with contextlib.suppress(BrokenPipeError):
            for _ in range(8_000):
                process.stdin.write(50 * "x" + "\n")
                process.stdin.flush()
                time.sleep(0.0002)
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        process.stdin = None
        output, errors = process.communicate(timeout=60)
        assert (process.returncode, output) == (0, "[1@localhost] done\n"), errors
    assert marked.all_gone()


def test_who_aborts_is_named_first(ddlrun: Run, marked: Marked) -> None:
    """MPI ends the others, too."""
    code = "import time\nif rank.value == 1: time.sleep(1); mpi.MPI_Abort(WORLD, 7)\ntime.sleep(9)"
    result = ddlrun("-keep_going", "-np", "2", *mpi(marked, code))
    assert result.returncode == 7, result.stderr
    words = [line for line in result.stderr.splitlines() if line.startswith("ddlrun: lost")]
    assert words[0].startswith("ddlrun: lost rank 1 on localhost, which called MPI_Abort after ")
    assert words[1].startswith("ddlrun: lost rank 0 on localhost, which has gone without a word")
    assert words[1].endswith("; no rank is left: ending the job.")
    assert marked.all_gone()


def test_a_rank_of_mpi_that_is_lost(ddlrun: Run, marked: Marked) -> None:
    """Hydra would end the job of a rank that has begun MPI and does not end it."""
    code = "import os, time\nif rank.value == 1: os.kill(os.getpid(), 9)\n"
    code += "time.sleep(3); print('done', flush=True); os._exit(0)"
    result = ddlrun("-keep_going", "-np", "3", *mpi(marked, code))
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("done") == 2
    assert marked.all_gone()


def test_too_few_are_left(ddlrun: Run, marked: Marked) -> None:
    late = "time.sleep(2); sys.exit(5)"
    result = ddlrun(
        "-keep_going", "-min", "3", "-np", "4", *ranks(marked, SLEEP, KILL, late, SLEEP)
    )
    assert result.returncode == 137
    first, verdict, *_ = result.stderr.splitlines()
    assert first.startswith("ddlrun: lost rank 1 ")
    assert first.endswith("; 3 ranks are left: the job goes on.")
    assert verdict.startswith("ddlrun: lost rank 2 on localhost, which ended with exit code 5 ")
    assert verdict.endswith("; 2 ranks are left, and -min says 3: ending the job.")
    assert marked.all_gone()


def test_the_last_rank_is_lost(ddlrun: Run, marked: Marked) -> None:
    result = ddlrun("-keep_going", "-np", "2", *ranks(marked, "sys.exit(4)", "time.sleep(1); 1/0"))
    assert result.returncode == 4
    assert "; no rank is left: ending the job.\n" in result.stderr


def test_who_has_ended_well_counts_as_there(ddlrun: Run, marked: Marked) -> None:
    result = ddlrun(
        "-keep_going", "-min", "2", "-np", "3", *ranks(marked, "pass", "time.sleep(2); 1/0", "pass")
    )
    assert result.returncode == 0, result.stderr


def test_a_signal_and_the_timeout_still_end_all(ddlrun: Run, start: Start, marked: Marked) -> None:
    words = ["-keep_going", "-np", "2", *ranks(marked, "say('here'); " + SLEEP)]
    assert ddlrun("-timeout", "3", *words).returncode == 124
    process = start(*words)
    assert process.stdout
    assert process.stdout.readline().endswith("here\n")
    process.terminate()
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 143
    assert "lost" not in errors
    assert marked.all_gone()


def test_a_stopped_rank_is_lost_when_all_others_have_ended(ddlrun: Run, marked: Marked) -> None:
    """Until then it may go on, and join again."""
    stop = "os.kill(os.getpid(), signal.SIGSTOP)"
    result = ddlrun(
        "-keep_going",
        *("-np", "2", "-x", "DDL_TIMEOUT=1"),
        *ranks(marked, "time.sleep(6); say('done')", stop),
    )
    assert result.returncode == 0, result.stderr
    assert "[0@localhost] done" in result.stdout
    assert "lost rank 1 on localhost, which was stopped by SIGSTOP" in result.stderr
    assert marked.all_gone()


def tell_of_the_second(start: Start, marked: Marked, victim: str) -> tuple[int, str, str]:
    """Kill what holds the second of two ranks: the job's status, output and words of ddlrun."""
    code = "say(os.getpid()); time.sleep(8); say('done')"
    process = start("-keep_going", "-H", "localhost:1,127.0.0.1:1", *ranks(marked, code))
    assert process.stdout
    pids = dict(process.stdout.readline().strip().split("] ") for _ in range(2))
    wrapper = parent(int(pids["[1@127.0.0.1"]))
    os.kill(wrapper if victim == "rank.py" else parent(wrapper), signal.SIGKILL)
    output, errors = process.communicate(timeout=60)
    assert marked.all_gone()
    return process.returncode, output, errors


def test_a_rank_that_goes_without_a_word(start: Start, marked: Marked) -> None:
    status, output, errors = tell_of_the_second(start, marked, "rank.py")
    assert (status, output) == (0, "[0@localhost] done\n")
    assert "ddlrun: lost rank 1 on 127.0.0.1, which has gone without a word after " in errors


def test_a_lost_host_ends_the_job(start: Start, marked: Marked) -> None:
    """Hydra ends all when the proxy of one host is gone."""
    status, _, errors = tell_of_the_second(start, marked, "proxy")
    assert status != 0
    assert "ddlrun: lost rank 0 on localhost, which has gone without a word after " in errors
    assert "; no rank is left: ending the job.\n" in errors


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-min", "2", "-np", "2"], "-min needs -keep_going"),
        (["-keep_going", "-min", "3", "-np", "2"], "-min 3, but the job has 2 ranks"),
        (["-keep_going", "-min", "0"], "-min 0: not a whole number from 1"),
        (
            ["-keep_going", "-ps", "1", "-np", "3"],
            "-keep_going excludes -ps: parameter servers do not end by themselves",
        ),
    ],
)
def test_wrong_words(ddlrun: Run, words: list[str], said: str) -> None:
    result = ddlrun(*words, "true")
    assert (result.returncode, result.stderr.splitlines()[0]) == (2, f"ddlrun: error: {said}")
