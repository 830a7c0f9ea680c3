"""A rank dies or stops at a random moment of random collectives: the others get an error, all of
them, and nothing wrong before."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from conftest import PROGRAMS, command, environment

TIMEOUT = 2
CODES = {"TIMEOUT", "PEER_LOST", "MPI"}
NAMED = r"rank (\d+) \(host \S+\)"


def ride_out(folder: Path, how: str, seed: int, n: int, hosts: int) -> None:
    """One job with one fault."""
    ended, reports = folder / "ended", folder / "reports"
    ended.mkdir()
    reports.mkdir()
    job = subprocess.Popen(
        command("survive", str(PROGRAMS / "storm.py"), how, str(seed), str(reports), n=n),
        env=environment(SURVIVE=ended, DDL_TIMEOUT=TIMEOUT, DDL_FAKE_HOSTS=hosts),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert job.stdout is not None
    told: dict[int, str] = {}
    words: dict[int, str] = {}
    victim = 0
    output = ""
    try:
        for line in job.stdout:
            output += line
            if found := re.match(r"rank (\d+): (\w+) after .* s late: (.*)", line):
                told[int(found[1])] = found[2]
                words[int(found[1])] = found[3]
            if line.startswith("pid "):
                victim = int(line.split()[1])
            if len(told) == n - 1 and victim:
                break
    finally:
        if victim and how == "stop":
            os.kill(victim, signal.SIGKILL)
        rest, _ = job.communicate(timeout=60)
    assert set(told) == set(range(n - 1)), output + rest
    assert set(told.values()) <= CODES, output + rest
    for rank, code in told.items():
        named = {int(other) for other in re.findall(NAMED, words[rank])}
        # Whom it waited for itself: the lost one, or one that waited for that one in turn.
        assert code == "MPI" or named - {rank}, output + rest
        assert named <= set(range(n)), output + rest
    # The chain ends at the lost rank.
    ends = any(re.search(rf"rank {n - 1} \(host \S+\)", text) for text in words.values())
    assert ends or "MPI" in told.values(), output + rest
    assert "AssertionError" not in output + rest


@pytest.mark.parametrize("how", ["kill", "stop"])
@pytest.mark.parametrize(("n", "hosts"), [(3, 0), (4, 2)])
def test_one_fault(tmp_path: Path, how: str, n: int, hosts: int) -> None:
    ride_out(tmp_path, how, 1, n, hosts)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["kill", "stop"])
@pytest.mark.parametrize(("n", "hosts"), [(2, 0), (3, 0), (2, 2), (4, 2), (4, 3)])
@pytest.mark.parametrize("seed", range(100, 110))
def test_many_faults(tmp_path: Path, how: str, n: int, hosts: int, seed: int) -> None:
    ride_out(tmp_path, how, seed, n, hosts)
