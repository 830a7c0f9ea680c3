"""Copies of -stage from which others remove files: found, mended, and kept while jobs run."""

import fcntl
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ddl.launch.hydra import WRAPPER
from test_stage_program import PROGRAM, Bench, bench, until

pytestmark = pytest.mark.skipif(not PROGRAM.is_file(), reason="built without ddl-stage")
TMPFILES = shutil.which("systemd-tmpfiles")
needs_tmpfiles = pytest.mark.skipif(not TMPFILES, reason="needs systemd-tmpfiles")
__all__ = ["bench"]

DAYS = 86400
RULE = """
import subprocess, sys
rule = f"e {sys.argv[1]} - - - aAmM:10d\\n"
subprocess.run(["systemd-tmpfiles", "--clean", "-"], input=rule, text=True, check=True)
"""


def clean(place: Path) -> None:
    """As systemd does it once a day in /tmp."""
    subprocess.run([sys.executable, "-c", RULE, str(place)], check=True)


def age(place: Path, days: float) -> None:
    """Nobody has read anything for so long; times of change that are younger become as old."""
    then = time.time() - days * DAYS
    for path in (place, *place.rglob("*")):
        changed = min(path.lstat().st_mtime, then)
        os.utime(path, (then, changed), follow_symlinks=False)


def whole(bench: Bench) -> bool:
    names = {str(path.relative_to(bench.prefix)) for path in bench.prefix.rglob("*")}
    return names == {"bin", "bin/run", "bin/alias", "big"}


@needs_tmpfiles
def test_files_that_systemd_has_removed_come_back(bench: Bench) -> None:
    assert bench.run() == (0, "1 1 0\n")
    age(bench.prefix, 20)
    os.utime(bench.prefix / "bin" / "run")  # it has been read since
    clean(bench.place)
    assert (bench.prefix / "bin" / "run").exists()
    assert not whole(bench)
    assert bench.run() == (0, "1 1 0\n")
    assert whole(bench)
    assert bench.left() == ["e-1"]
    assert bench.run() == (0, "1 0 0\n")


@pytest.mark.parametrize(
    "harm",
    [
        lambda prefix: (prefix / "big").unlink(),
        lambda prefix: (prefix / "bin" / "alias").unlink(),
        lambda prefix: shutil.rmtree(prefix / "bin"),
        lambda prefix: (prefix / "big").chmod(0o644) or (prefix / "big").write_bytes(b"more"),
        lambda prefix: os.utime(prefix / "bin" / "run", (0, 0)),
        lambda prefix: (prefix.parent / "e-1.files").unlink(),
        lambda prefix: os.truncate(prefix.parent / "e-1.files", 30),
    ],
)
def test_holes_are_found(bench: Bench, harm: object) -> None:
    assert callable(harm)
    assert bench.run() == (0, "1 1 0\n")
    harm(bench.prefix)
    user = subprocess.Popen(["sleep", "100"], cwd=bench.prefix)  # it may run from there
    try:
        assert bench.run() == (0, "1 1 0\n")
    finally:
        user.kill()
        user.wait()
    assert whole(bench)
    assert bench.left() == ["e-1"]
    (bench.prefix / "bin" / "__pycache__").mkdir()  # what a job adds is no harm
    assert bench.run() == (0, "1 0 0\n")


@needs_tmpfiles
def test_what_is_used_again_is_young_again(bench: Bench) -> None:
    assert bench.run()[0] == 0
    age(bench.place, 9)
    before = (bench.prefix / "bin" / "run").stat().st_mtime
    assert bench.run() == (0, "1 0 0\n")
    age_later = time.time() - 5 * DAYS
    assert (bench.prefix / "big").stat().st_atime > age_later
    assert (bench.prefix / "bin" / "run").stat().st_mtime == before
    clean(bench.place)
    assert whole(bench)


RANK = {
    **{"MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "1", "PMI_RANK": "0", "PMI_SIZE": "1"},
    "DDLRUN_GRACE": "2",
}


@needs_tmpfiles
def test_a_copy_stays_while_a_rank_runs_from_it(bench: Bench) -> None:
    """The wrapper of a rank holds the lock that systemd honours, and that ddl-stage does."""
    assert bench.run()[0] == 0
    (bench.prefix / "bin" / "python").symlink_to(Path(sys.executable).resolve())
    words = [str(bench.prefix / "bin" / "python"), "-I", "-S", str(WRAPPER), "sleep", "100"]
    job = subprocess.Popen(words, env={**os.environ, **RANK})
    try:
        until(lambda: is_held(bench.prefix))
        age(bench.place, 20)
        clean(bench.place)
        assert bench.run(name="e-2") == (0, "1 1 0\n")
        assert (bench.prefix / "big").exists()
        assert bench.left() == ["e-1", "e-2"]
    finally:
        job.kill()
        job.wait(20)
    until(lambda: not is_held(bench.prefix))
    age(bench.place, 20)
    clean(bench.place)
    assert not (bench.prefix / "big").exists()


def is_held(folder: Path) -> bool:
    if not folder.exists():
        return False
    file = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


def test_a_copy_that_is_being_removed_is_not_had(bench: Bench) -> None:
    """Another process holds the lock: it may remove what is still there."""
    assert bench.run()[0] == 0
    with (bench.place / "e-1.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = bench.start()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(3)
        shutil.rmtree(bench.prefix)
    said, _ = process.communicate(timeout=60)
    assert (process.returncode, said) == (0, "1 1 0\n")
    assert whole(bench)
