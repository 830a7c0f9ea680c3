"""Output that cannot be written, or is mistaken for something else, and the end of all of it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from programs import ranks
from test_signals import start_two

from conftest import DDLRUN, Marked, Result

Run = Callable[..., Result]
Start = Callable[..., subprocess.Popen[str]]


def test_a_full_disk_does_not_end_the_job(marked: Marked, tmp_path: Path) -> None:
    code = "print('lost', flush=True); time.sleep(1); open(f'done{rank}', 'w').close()"
    with open("/dev/full", "w") as full:  # noqa: PTH123
        done = subprocess.run(
            [*DDLRUN, "-np", "2", *ranks(marked, code)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            check=False,
        )
    assert {path.name for path in tmp_path.iterdir()} == {"done0", "done1"}
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "ddlrun: cannot write the ranks' output: No space left on device; the job goes on",
        "ddlrun: output of the ranks is lost: No space left on device",
    ]


def test_a_full_disk_for_our_own_words(marked: Marked, tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:  # noqa: PTH123
        words = [*DDLRUN, "-np", "2", *ranks(marked, "sys.exit(3)")]
        assert subprocess.run(words, stderr=full, cwd=tmp_path, check=False).returncode == 3


def test_output_that_does_not_block(marked: Marked, tmp_path: Path) -> None:
    """As that of a terminal which ssh, or a program of node, has left so."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    code = "for n in range(20000): print('line', n)"
    with subprocess.Popen(
        [*DDLRUN, "-np", "2", *ranks(marked, code)],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    ) as process:
        os.close(writer)
        time.sleep(2)  # the pipe is full by now
        with open(reader) as file:  # noqa: PTH123
            lines = file.read().splitlines()
        assert process.stderr
        assert process.stderr.read() == ""
        assert process.wait(60) == 0
    for rank in (0, 1):
        mine = [line for line in lines if line.startswith(f"[{rank}@")]
        assert mine == [f"[{rank}@localhost] line {n}" for n in range(20000)]


@pytest.mark.parametrize("files", ["0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"])
def test_standard_files_that_are_closed(marked: Marked, tmp_path: Path, files: str) -> None:
    code = "print('out'); print('err', file=sys.stderr); open(f'done{rank}', 'w').close()"
    words = ["sh", "-c", f'"$@" {files}', "sh", *DDLRUN, "-np", "2", *ranks(marked, code)]
    assert subprocess.run(words, cwd=tmp_path, check=False, timeout=60).returncode == 0
    assert {path.name for path in tmp_path.iterdir()} == {"done0", "done1"}


def test_a_line_that_looks_like_mpi_s(ddlrun: Run, marked: Marked) -> None:
    line = "Abort(1) on node 0 (rank 0 in comm 0): application called MPI_Abort"
    result = ddlrun("-np", "2", *ranks(marked, f"print({line!r}); time.sleep(1)"))
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.count(line) == 2


def test_a_rank_that_fails_after_such_a_line(ddlrun: Run, marked: Marked) -> None:
    code = "print('Abort(1) on node 0', flush=True); time.sleep(600)"
    result = ddlrun("-np", "2", *ranks(marked, code, "time.sleep(1); sys.exit(3)"))
    assert result.returncode == 3
    assert "ddlrun: rank 1 on localhost ended with exit code 3" in result.stderr


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_the_last_words_of_ranks_that_are_told_to_end(
    start: Start, marked: Marked, number: signal.Signals
) -> None:
    """They are on the way while the ranks' ends are known already."""
    lines = 3000
    code = (
        "def save(*_):\n"
        f"    sys.stdout.write(''.join(f'last {{n}}\\n' for n in range({lines}))); sys.exit(1)\n"
        "signal.signal(signal.SIGTERM, save)\nsay('up')\nwhile True: time.sleep(1)"
    )
    for _ in range(3):
        process = start_two(start, marked, code)
        process.send_signal(number)
        out, _ = process.communicate(timeout=60)
        assert process.returncode == 128 + number
        for rank in (0, 1):
            mine = [line for line in out.splitlines() if line.startswith(f"[{rank}@")]
            assert mine == [f"[{rank}@localhost] last {n}" for n in range(lines)]


def test_a_signal_before_mpiexec_is_there(tmp_path: Path) -> None:
    """The child tells it to us before Popen has returned."""
    early = (
        "import os, signal, sys, ddl.launch.run as run\n"
        "run.die_with_parent = lambda: os.kill(os.getppid(), signal.SIGTERM)\n"
        "from ddl.launch.cli import main\nsys.exit(main(['-np', '2', 'sleep', '600']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", early],
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        timeout=60,
        check=False,
    )
    assert done.returncode == 128 + signal.SIGTERM
    assert "Traceback" not in done.stderr
    assert "ddlrun: SIGTERM (signal 15): all ranks were ended" in done.stderr
