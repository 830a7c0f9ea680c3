"""The tests run with the Python of the environment under test; dev: with ../src on PYTHONPATH."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from ddl_ce_smoke.model import Bandwidth, Case, Link, Part, Report, Throughput, with_efficiency

FAULTY_RANK = Path(__file__).with_name("faulty_rank.py")


@pytest.fixture
def report() -> Report:
    """A report with every kind of outcome, and text that XML and HTML must escape."""
    failed = Case(
        "4 ranks: ddl allreduce max float16",
        "failed",
        0.02,
        'rank 1 of 4 on node1: <first> & "last" index 17',
        "trace with \x00 and \x1b[31m colour",
    )
    speeds = [
        Throughput(backend, "cpu", ranks, None, speed, None, ranks > 2)
        for backend, ranks, speed in (
            ("ddl", 1, 1000.0),
            ("ddl", 4, 3000.0),
            ("gloo", 1, 1000.0),
            ("gloo", 4, 2000.0),
        )
    ]
    return Report(
        version="0.1.0",
        prefix="/opt/env",
        started="2026-11-21T09:30:00+00:00",
        command="ddlce-smoke",
        ranks=[1, 4],
        quick=False,
        machine={"host": "node1", "system": "Linux", "cpu": "x", "cores": "2", "memory": "24 GiB"},
        parts=[
            Part("versions", "versions and imports", [Case("numpy", "passed", 0.1, "2.4.6")], 1.0),
            Part("collectives", "collectives", [failed, Case("x", "skipped", 0, "no")], 2.5),
        ],
        throughput=[
            Throughput("ddl", "cpu", 4, 0.975, 2900.0, None, True),
            *with_efficiency(speeds),
        ],
        bandwidth=[
            Bandwidth.measured(backend, "cpu", 4, nbytes, seconds)
            for nbytes in (4096, 1048576)
            for backend, seconds in (("ddl", 1e-3), ("gloo", 2e-3))
        ],
        links=[Link("node1", "host", 1e9), Link("uplink of node1,node2", "uplink", 2e9)],
    )


@dataclass
class Fault:
    """Rank programs with a fault on rank 1, from a file of this test's own.

    Attributes:
        command: goes in front of a rank program's name.
    """

    command: tuple[str, ...]
    script: Path

    def left_over(self) -> list[str]:
        """Command lines of processes that still run the script."""
        found = []
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = entry.read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            if str(self.script) in words:
                found.append(" ".join(words))
        return found


@pytest.fixture
def fault(tmp_path: Path, request: pytest.FixtureRequest) -> Fault:
    """The fault named by the test's parameter; the script's path marks its processes."""
    script = tmp_path / "faulty_rank.py"
    script.write_text(FAULTY_RANK.read_text())
    return Fault((sys.executable, str(script), request.param), script)
