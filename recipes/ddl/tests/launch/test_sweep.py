"""MPICH's shared memory in /dev/shm goes with its job, however that ends; that of others stays."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from programs import MPI, libmpi

from conftest import SOURCE, Marked

Start = Callable[..., subprocess.Popen[str]]

# Ends by itself once told to by a file.
ABORT_WHEN_TOLD = """
mpi.MPI_Barrier(WORLD)
print("up", flush=True)
import os, time
while not os.path.exists("end"): time.sleep(0.05)
if rank.value == 1: mpi.MPI_Abort(WORLD, 7)
time.sleep(600)
"""


def start_mpi(start: Start, marked: Marked) -> subprocess.Popen[str]:
    """Two ranks that have shared memory by now."""
    words = [sys.executable, "-c", MPI, libmpi(), marked.mark, ABORT_WHEN_TOLD]
    process = start("-np", "2", *words)
    assert process.stdout
    for _ in range(2):
        assert process.stdout.readline().endswith("up\n")
    return process


def segments_of(marked: Marked) -> set[Path]:
    """What the job has mapped of /dev/shm."""
    found: set[str] = set()
    for pid in marked.processes():
        maps = Path(f"/proc/{pid}/maps").read_text()
        found.update(re.findall(r"/dev/shm/\S+$", maps, re.M))
    assert found, "MPICH shares no memory by name: this test, and sweep.py, are out of date"
    return {Path(name) for name in found}


def gone(paths: set[Path], seconds: float = 20) -> bool:
    deadline = time.monotonic() + seconds
    while left := [path for path in paths if path.exists()]:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return not left


def kill(processes: Iterable[int]) -> None:
    for pid in processes:
        with contextlib.suppress(ProcessLookupError):  # it went with one of the others
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("name", ["a rank", "mpiexec's proxy", "ddlrun", "everything"])
def test_segments_of_a_killed_job(start: Start, marked: Marked, name: str) -> None:
    process = start_mpi(start, marked)
    segments = segments_of(marked)
    found = marked.processes()
    wrappers = [pid for pid, words in found.items() if "rank.py" in words.split(marked.mark)[0]]
    proxy = int(Path(f"/proc/{wrappers[0]}/stat").read_text().rpartition(")")[2].split()[1])
    ranks = [pid for pid, words in found.items() if words.startswith(f"{sys.executable} -c")]
    victims = {
        "a rank": ranks[:1],
        "mpiexec's proxy": [proxy],
        "ddlrun": [process.pid],
        "everything": [*found, proxy],
    }
    kill(victims[name])
    process.wait(60)
    assert gone(segments)
    assert marked.all_gone()


def test_segments_of_a_job_that_aborts(start: Start, marked: Marked, tmp_path: Path) -> None:
    process = start_mpi(start, marked)
    segments = segments_of(marked)
    (tmp_path / "end").touch()
    assert process.wait(60) == 7
    assert gone(segments)


def test_segments_of_another_job_stay(start: Start, marked: Marked) -> None:
    """Of the same user, begun later, and still at work when the first has been swept."""
    other = Marked()
    first = start_mpi(start, marked)
    segments = segments_of(marked)
    second = start_mpi(start, other)
    others = segments_of(other)
    assert not segments & others
    kill(marked.processes())
    first.wait(60)
    assert gone(segments)
    time.sleep(1)  # the sweep looks again for as long as there is any segment
    assert all(path.exists() for path in others)
    second.terminate()
    second.wait(60)
    assert gone(others)
    assert other.all_gone()


SWEEP = SOURCE / "ddl" / "launch" / "sweep.py"


@pytest.mark.skipif(not SWEEP.is_file(), reason="of the sources")
def test_only_what_nobody_uses_is_swept() -> None:
    """By name, age and use: a file that is open, one of another name, and an old one stay.

    In a folder of its own: each `ddl.init` sweeps the other, whatever the age.
    """
    folder = Path(tempfile.mkdtemp(dir="/dev/shm"))
    mark = f"{os.getpid():x}_0"
    stale, opened, foreign, old, ucx = (
        folder / f"{name}{mark.removesuffix(end)}"
        for name, end in (
            ("mpich_shm_a", ""),
            ("mpich_shm_b", ""),
            ("ours_", ""),
            ("mpich_vci_", ""),
            ("ucx_shm_posix_", "_0"),
        )
    )
    old.touch()
    job = subprocess.Popen(["sleep", "600"])
    try:
        time.sleep(6)  # more than MARGIN
        words = [str(SWEEP), str(job.pid), "2", str(folder)]
        sweep = subprocess.Popen([sys.executable, "-I", "-S", *words])
        stale.touch()
        foreign.touch()
        ucx.touch()
        with opened.open("w"):
            job.kill()
            job.wait()
            assert gone({stale, ucx})
            assert opened.exists()
        assert sweep.wait(60) == 0
        assert not opened.exists()
        assert foreign.exists()
        assert old.exists()
    finally:
        job.kill()
        shutil.rmtree(folder)


# Has a segment mapped, and opens and closes other files, as a starting program does.
BUSY = """
import mmap, os, sys
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT | os.O_EXCL)
os.ftruncate(file, 4096)
held = mmap.mmap(file, 4096)
os.close(file)
print("up", flush=True)
while True:
    for file in [os.open("/dev/null", os.O_RDONLY) for _ in range(50)]: os.close(file)
"""


@pytest.mark.skipif(not SWEEP.is_file(), reason="of the sources")
def test_a_living_segment_of_another_job_stays() -> None:
    """Though what its process has open changes while it is looked at."""
    segment = Path(f"/dev/shm/mpich_shm_c{os.getpid():x}_0")
    busy = subprocess.Popen([sys.executable, "-c", BUSY, segment], stdout=subprocess.PIPE)
    try:
        assert busy.stdout
        assert busy.stdout.readline() == b"up\n"
        job = subprocess.Popen(["true"])
        sweep = subprocess.Popen([sys.executable, "-I", "-S", str(SWEEP), str(job.pid), "2"])
        job.wait()
        assert sweep.wait(60) == 0
        assert segment.exists()
    finally:
        busy.kill()
        busy.wait()
        if busy.stdout:
            busy.stdout.close()
        segment.unlink(missing_ok=True)
