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


SAYS = "say(os.getpid()); "
LATE = "time.sleep(8); say('done')"
LOST = "ddlrun: lost rank {} on {}, which has gone with its host after "


def pids(process: subprocess.Popen[str], count: int) -> dict[str, int]:
    """The process of each rank, by its mark; each says it first."""
    assert process.stdout
    lines = [process.stdout.readline().strip().partition("] ") for _ in range(count)]
    return {mark.strip("["): int(pid) for mark, _, pid in lines}


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def lose_host(rank: int) -> None:
    """Kill the proxy of a host, and so all of its ranks; `rank` is one's process."""
    os.kill(parent(parent(rank)), signal.SIGKILL)


@pytest.mark.parametrize("second", ["localhost", "127.0.0.1"])
def test_a_rank_that_goes_without_a_word(start: Start, marked: Marked, second: str) -> None:
    """Somebody kills its wrapper, which tells of its end; beside another rank, or alone there."""
    process = start("-keep_going", "-H", f"localhost,{second}", *ranks(marked, SAYS + LATE))
    os.kill(parent(pids(process, 2)[f"1@{second}"]), signal.SIGKILL)
    output, errors = process.communicate(timeout=60)
    assert marked.all_gone()
    assert (process.returncode, output) == (0, "[0@localhost] done\n")
    assert f"ddlrun: lost rank 1 on {second}, which has gone without a word after " in errors


def test_the_others_go_on_without_a_lost_host(start: Start, marked: Marked) -> None:
    words = ["-keep_going", "-H", "localhost:1,127.0.0.1:2,127.0.0.2:1"]
    process = start(*words, *ranks(marked, SAYS + LATE))
    lose_host(pids(process, 4)["1@127.0.0.1"])
    assert process.stderr
    first, second = process.stderr.readline(), process.stderr.readline()  # before the others' end
    assert process.poll() is None
    assert first.startswith(LOST.format(1, "127.0.0.1"))
    assert first.endswith(" s; 3 ranks are left: the job goes on.\n")
    assert second.startswith(LOST.format(2, "127.0.0.1"))
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
    assert sorted(output.splitlines()) == ["[0@localhost] done", "[3@127.0.0.2] done"]
    assert marked.all_gone()


def test_the_host_of_rank_0_is_lost_while_input_is_under_way(start: Start, marked: Marked) -> None:
    reads = SAYS + "[line for line in sys.stdin]"
    process = start(
        *("-keep_going", "-H", "127.0.0.1:1,localhost:1"),
        *ranks(marked, reads, SAYS + LATE),
        stdin=subprocess.PIPE,
    )
    found = pids(process, 2)
    assert process.stdin
    with contextlib.suppress(BrokenPipeError):
        for number in range(4000):
            if number == 2000:
                lose_host(found["0@127.0.0.1"])
            process.stdin.write(50 * "x" + "\n")
            process.stdin.flush()
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()
    process.stdin = None
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, output) == (0, "[1@localhost] done\n"), errors
    assert errors.startswith(LOST.format(0, "127.0.0.1"))
    assert marked.all_gone()


def test_hosts_are_lost_in_the_middle_of_a_word(start: Start, marked: Marked) -> None:
    """All that a host was telling mpiexec is cut off somewhere."""
    much = SAYS + "time.sleep(1)\nwhile True: say('x' * 100_000)"
    words = ["-keep_going", "-H", "localhost:1,127.0.0.1:1,127.0.0.2:1,127.0.0.3:1"]
    process = start(*words, *ranks(marked, SAYS + LATE, much))
    found = pids(process, 4)
    time.sleep(1)
    for number in (1, 2, 3):
        lose_host(found[f"{number}@127.0.0.{number}"])
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert "[0@localhost] done\n" in output
    for number in (1, 2, 3):
        assert LOST.format(number, f"127.0.0.{number}") in errors
    assert marked.all_gone()


def test_too_few_are_left_without_a_host(start: Start, marked: Marked) -> None:
    words = ["-keep_going", "-min", "2", "-H", "localhost:1,127.0.0.1:2"]
    process = start(*words, *ranks(marked, SAYS + SLEEP))
    lose_host(pids(process, 3)["2@127.0.0.1"])
    _, errors = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "; 1 rank is left, and -min says 2: ending the job.\n" in errors
    assert marked.all_gone()


def test_a_host_with_ranks_of_mpi_is_lost(start: Start, marked: Marked) -> None:
    """Those of it are in the middle of MPI, and nobody tells the others."""
    code = "import os, time\nprint(os.getpid(), flush=True)\n"
    code += "time.sleep(5); print('done', flush=True); os._exit(0)"
    hosts = ["-H", "localhost:1,127.0.0.1:1"]
    process = start("-keep_going", *hosts, *mpi(marked, code))
    lose_host(pids(process, 2)["1@127.0.0.1"])
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, output) == (0, "[0@localhost] done\n"), errors
    assert marked.all_gone()


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
