"""Faults on real ranks under the real ddlrun: each is caught, named, and ends in time.

Needs an environment with ddl, ddl-torch and ddlrun.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ddl_ce_smoke import cli, probe, suite
from ddl_ce_smoke.probe import Environment

from conftest import Fault


def run_suite(fault: Fault, folder: Path, *arguments: str) -> tuple[int, dict]:
    """The suite in this process with faulty ranks: exit status and JSON report."""
    common = ["--quick", "--ranks", "2", "--report", str(folder)]
    status = cli.main([*common, *arguments], fault.command)
    return status, json.loads((folder / "report.json").read_text())


def failures(report: dict) -> dict[str, str]:
    """Message by name of the failed cases."""
    cases = [case for part in report["parts"] for case in part["cases"]]
    return {case["name"]: case["message"] for case in cases if case["outcome"] == "failed"}


@pytest.mark.parametrize("fault", ["none"], indirect=True)
def test_without_a_fault_the_collectives_pass(fault: Fault, tmp_path: Path) -> None:
    status, report = run_suite(fault, tmp_path, "--parts", "collectives")
    assert failures(report) == {}
    assert status == 0
    assert len(report["parts"][0]["cases"]) > 130  # through ddl and through torch


@pytest.mark.parametrize(
    ("fault", "case"),
    [
        ("wrong allreduce", "allreduce sum bfloat16"),
        ("wrong broadcast", "broadcast int64"),
        ("wrong allgather", "allgather float16"),
        ("wrong reduce-scatter", "reduce-scatter max float64"),
    ],
    indirect=["fault"],
)
def test_one_wrong_element_is_caught(fault: Fault, case: str, tmp_path: Path) -> None:
    status, report = run_suite(fault, tmp_path, "--parts", "collectives")
    assert status == 1
    message = failures(report)[f"2 ranks: ddl {case}"]
    assert re.match(rf"rank 1 of 2 on \S+: {case}, \d+ elements", message)
    assert re.search(r"1 of \d+ elements wrong, first at index \d+: expected \S+, got", message)
    collective = case.split()[0]
    assert all(collective in name for name in failures(report)), "only the faulty one fails"


@pytest.mark.parametrize("fault", ["no barrier"], indirect=True)
def test_a_barrier_that_lets_ranks_through_is_caught(fault: Fault, tmp_path: Path) -> None:
    status, report = run_suite(fault, tmp_path, "--parts", "collectives")
    assert status == 1
    assert "left a barrier that 1 of 2 ranks" in failures(report)["2 ranks: ddl barrier"]


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("kill", r"rank 1 on \S+ was killed by SIGKILL"),
        # Rank 0 may notice before ddlrun does.
        ("exit3", r"rank 1 on \S+ ended with exit code 3|DDLError: rank 1 \(host \S+\) has died"),
        ("raise", r"rank 1 on \S+ \(process \d+\), at ddl .*: RuntimeError: a fault in rank 1"),
    ],
    indirect=["fault"],
)
def test_a_rank_that_ends_early_is_named(fault: Fault, said: str, tmp_path: Path) -> None:
    status, report = run_suite(fault, tmp_path, "--parts", "collectives")
    assert status == 1
    assert re.search(said, failures(report)["2 ranks: run"])
    assert "rank 1" in (tmp_path / "report.html").read_text()
    assert 'failures="1"' in (tmp_path / "junit.xml").read_text()
    assert fault.left_over() == []


@pytest.mark.parametrize(
    ("fault", "limit", "said"),
    [
        # A rank waits for half of the limit after its start, which takes long on a busy machine.
        ("stop", 80, r"rank 0 on .*: DDLError: .*rank 1 \(host"),
        ("sleep", 80, r"rank 0 on .*: DDLError: .*rank 1 \(host"),
        ("all sleep", 30, r"not done after 30 s; rank 0 .* further than ddl .*; rank 1 on .* ddl"),
    ],
    indirect=["fault"],
)
def test_a_rank_that_hangs_ends_the_run_in_time(
    fault: Fault, limit: int, said: str, tmp_path: Path
) -> None:
    status, report = run_suite(fault, tmp_path, "--parts", "collectives", "--timeout", str(limit))
    assert status == 1
    assert re.search(said, failures(report)["2 ranks: run"])
    assert fault.left_over() == []


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("drift", "the ranks' weights differ"),
        ("summed gradients", "the averaged gradients differ"),
    ],
    indirect=["fault"],
)
def test_wrong_training_is_caught(fault: Fault, said: str, tmp_path: Path) -> None:
    status, report = run_suite(fault, tmp_path, "--parts", "training")
    assert status == 1
    assert said in failures(report)["DDP on 2 ranks"]


@pytest.mark.parametrize("fault", ["sleep"], indirect=True)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_all_ranks(fault: Fault, number: signal.Signals, tmp_path: Path) -> None:
    code = (
        "import sys; from ddl_ce_smoke import cli; sys.exit(cli.main(sys.argv[4:], sys.argv[1:4]))"
    )
    arguments = [*fault.command, "--quick", "--ranks", "2", "--parts", "collectives"]
    suite = subprocess.Popen(
        [sys.executable, "-c", code, *arguments, "--report", str(tmp_path / "report")],
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while len(fault.left_over()) < 3 and time.monotonic() < deadline:
        time.sleep(0.1)  # until ddlrun and both ranks run
    suite.send_signal(number)
    _, errors = suite.communicate(timeout=60)
    assert suite.returncode == 130
    assert "interrupted" in errors
    assert "Traceback" not in errors
    while fault.left_over() and time.monotonic() < deadline + 30:
        time.sleep(0.1)
    assert fault.left_over() == []
    assert not (tmp_path / "report").exists()


def test_modules_in_the_current_folder_are_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("json", "typing", "numpy", "ddl_ce_smoke"):
        (tmp_path / f"{name}.py").write_text("open('sprung', 'w')\n")
    monkeypatch.chdir(tmp_path)
    environment = Environment.current()
    python = suite.RANK_COMMAND[:-1]
    cases, facts = probe.check(environment, python, 300)
    assert facts
    assert len(cases) > 2
    assert not (tmp_path / "sprung").exists()
    probe.check(environment, python[:1], 300)  # so that it would have been seen
    assert (tmp_path / "sprung").exists()
