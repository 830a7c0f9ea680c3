"""A host on which MPI cannot share memory, or ranks not meet, says so before the ranks start."""

import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from ddl.launch.host_state import PER_RANK, troubles
from programs import mpi, ranks
from test_sweep import segments_of, start_mpi

from conftest import DDLRUN, Marked, Result

Start = Callable[..., subprocess.Popen[str]]

_TRY = ["unshare", "-mn", "mount", "-t", "tmpfs", "tmpfs", "/dev/shm"]
_CAN = subprocess.run(_TRY, check=False, capture_output=True).returncode == 0
needs_namespaces = pytest.mark.skipif(not _CAN, reason="unshare(1) may make no namespaces here")


def inside(flag: str, before: str, *words: str) -> Result:
    """ddlrun in a namespace of its own."""
    script = f"{before} && exec {shlex.join([*DDLRUN, *words])}"
    return subprocess.run(
        ["unshare", flag, "sh", "-c", script],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@needs_namespaces
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("size=1m", "/dev/shm has 1 MiB free, and MPI needs 4 MiB there for this host's 2 ranks: "),
        ("ro", "/dev/shm cannot be written, and MPI needs 4 MiB there for this host's 2 ranks: "),
    ],
)
def test_shared_memory_without_a_place(marked: Marked, options: str, words: str) -> None:
    mount = f"mount -t tmpfs -o {options} tmpfs /dev/shm"
    result = inside("-m", mount, "-np", "2", *mpi(marked, "pass"))
    assert result.returncode != 0
    assert f"[0@localhost] ddlrun: {words}" in result.stderr
    if options == "size=1m":
        assert "was killed by SIGBUS (signal 7)" in result.stderr
        assert "ddlrun:     ddlrun: killed by SIGBUS, as where shared memory has no place" in (
            result.stderr
        )


@needs_namespaces
def test_a_small_place_is_enough_for_what_is_said(marked: Marked) -> None:
    mount = "mount -t tmpfs -o size=4m tmpfs /dev/shm"
    result = inside("-m", mount, "-np", "2", *mpi(marked, "pass"))
    assert (result.returncode, result.stderr) == (0, "")


@needs_namespaces
def test_a_loopback_device_that_is_down(marked: Marked) -> None:
    result = inside("-n", "true", "-np", "2", *ranks(marked, "pass"))
    assert "[0@localhost] ddlrun: the loopback device is down, so ranks of this host" in (
        result.stderr
    )
    result = inside("-n", "ip link set lo up", "-np", "2", *ranks(marked, "pass"))
    assert (result.returncode, result.stderr) == (0, "")


def test_no_shared_memory_at_all(tmp_path: Path) -> None:
    (words,) = troubles(3, str(tmp_path / "shm"))
    assert words.startswith(f"{tmp_path}/shm: No such file or directory, and MPI needs 5 MiB there")


def test_the_size_is_that_of_this_mpich(start: Start, marked: Marked) -> None:
    process = start_mpi(start, marked)
    sizes = [path.stat().st_size for path in segments_of(marked) if "mpich_shm" in path.name]
    process.terminate()
    process.communicate(timeout=60)
    assert sizes
    assert 2 * PER_RANK <= max(sizes) <= 2 * PER_RANK + 65536
