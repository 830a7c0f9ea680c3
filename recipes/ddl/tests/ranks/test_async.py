"""Asynchronous collectives on real ranks: exact results, clear errors, and an end in any case."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from conftest import PROGRAMS, Launch

# Far above what any of this takes: only a hang reaches it.
LONG = 100.0


def fusion(nbytes: int, wait: float = 1) -> dict[str, str]:
    return {"DDL_OPTIONS": f"-fusion_bytes {nbytes} -fusion_wait {wait}"}


@pytest.mark.parametrize(
    ("n", "hosts", "nbytes"),
    [(1, 0, 9000), (2, 0, 0), (2, 0, 9000), (2, 0, 1 << 20), (4, 3, 0), (4, 3, 9000), (4, 0, 9000)],
)
def test_every_result_is_exact(passes: Launch, n: int, hosts: int, nbytes: int) -> None:
    passes("overlap", n=n, hosts=hosts, chunk=16384, timeout=LONG, env=fusion(nbytes))


@pytest.mark.parametrize(("n", "hosts"), [(1, 0), (2, 0), (4, 3)])
def test_a_burst_takes_fewer_messages(passes: Launch, n: int, hosts: int) -> None:
    unfused = passes("fuse", n=n, hosts=hosts, env=fusion(0, 1000))
    fused = passes("fuse", n=n, hosts=hosts, env=fusion(1 << 20, 1000))
    assert "messages 60 of 60" in unfused.stdout
    count = re.search(r"messages (\d+) of 60", fused.stdout)
    assert count is not None
    assert int(count[1]) < 30


def test_the_trace_tells_what_is_fused(passes: Launch) -> None:
    env = {"DDL_OPTIONS": "-dbg_level 2 -fusion_wait 1000"}
    lines = passes("fuse", n=2, env=env).stderr
    assert re.search(r"iallreduce\(0 x int32, sum\) took", lines)
    assert re.search(r" allreduce\(\d+ x int32, sum, fused\) took", lines)


@pytest.mark.parametrize(("n", "hosts"), [(2, 0), (4, 0), (4, 3)])
def test_async_disagreement_is_an_error_everywhere(passes: Launch, n: int, hosts: int) -> None:
    passes("async_disagree", n=n, hosts=hosts, timeout=LONG, env=fusion(16384))


@pytest.mark.parametrize(
    ("n", "hosts", "nbytes", "started"),
    [(2, 0, 0, "own"), (3, 0, 65536, "own"), (3, 0, 65536, "none"), (2, 2, 65536, "none")],
)
def test_a_killed_rank_ends_all_that_is_pending(
    launch: Launch, tmp_path: Path, n: int, hosts: int, nbytes: int, started: str
) -> None:
    result = launch(
        *("survive", str(PROGRAMS / "async_lose.py"), started),
        n=n,
        hosts=hosts,
        timeout=2 if hosts else LONG,
        env={"SURVIVE": str(tmp_path)} | fusion(nbytes),
    )
    told = dict(re.findall(r"^rank (\d): (.*)$", result.stdout, re.M))
    assert len(told) == n - 1, result.stdout + result.stderr
    assert any(f"rank {n - 1} (host" in text for text in told.values()), told
    if not hosts:
        assert all(text.startswith("PEER_LOST") for text in told.values()), told


@pytest.mark.parametrize(
    ("way", "n", "hosts"),
    [
        ("finalize", 1, 0),
        ("finalize", 3, 2),
        ("exit", 2, 0),
        ("exit, dropped", 2, 0),
        ("exit of one", 2, 0),
        ("exit of one", 2, 2),
        ("without finalize", 2, 0),
        ("without finalize", 3, 2),
        ("threads", 1, 0),
    ],
)
def test_ending(passes: Launch, way: str, n: int, hosts: int) -> None:
    result = passes("async_endings", way, n=n, hosts=hosts, timeout=10, env=fusion(1 << 16))
    assert result.stdout.count("ended well") == n


def test_ending_at_once(launch: Launch, tmp_path: Path) -> None:
    """No farewell to MPI: the launcher complains, but nothing hangs or crashes."""
    result = launch("async_endings", "at once", str(tmp_path), n=2, timeout=LONG)
    assert len(list(tmp_path.iterdir())) == 2
    # mpiexec may kill the other one, by signal 9; nothing else ends a rank.
    assert not re.search(r"signal (?!9\b)", result.stdout + result.stderr)


@pytest.mark.parametrize("n", [1, 2])
def test_the_c_interface(passes: Launch, n: int) -> None:
    passes("async_c_interface", n=n, timeout=LONG)


def test_ranks_must_fuse_alike(launch: Launch) -> None:
    result = launch("async_endings", "other limits", n=2)
    assert result.returncode != 0
    message = r"-fusion_bytes \(or DDL_FUSION_BYTES\) differs between ranks: 100 and 101"
    assert len(re.findall(message, result.stderr)) >= 2, result.stderr
