"""The smoke suite on the environment that `make` built and installed."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from ddlce.smoke import clean_environment
from support.run import run
from support.suites import run_suite

pytestmark = pytest.mark.built

SUITE_TESTS = "ddl-ce-smoke/tests"


def smoke(*arguments: str, environ: dict[str, str] | None = None) -> tuple[int, str]:
    """`ddlce smoke ddl-ce` as a user runs it: exit status and standard error."""
    done = run(
        [sys.executable, "-m", "ddlce", "smoke", "ddl-ce", *arguments],
        env={**os.environ, **(environ or {})},
    )
    return done.returncode, done.stderr


@pytest.mark.slow  # `make` has just had it run on more ranks
def test_the_built_environment_passes(prefix: Path, tmp_path: Path) -> None:
    """On fewer ranks than `make` has it run: what it says, and that it is right."""
    status, errors = smoke("--quick", "--ranks", "1,2", "--report", str(tmp_path))
    assert status == 0, errors
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["prefix"] == str(prefix)
    assert [part["outcome"] for part in report["parts"]] == ["passed"] * 4
    skipped = [c["name"] for p in report["parts"] for c in p["cases"] if c["outcome"] == "skipped"]
    assert skipped == [], "every main package is in the release"
    trained = [row for row in report["throughput"] if row["accuracy"]]
    assert [row["ranks"] for row in trained if row["backend"] == "ddl"] == [2]  # quick: the largest
    assert [row["ranks"] for row in trained if row["backend"] == "horovod"] == [2]
    assert [row["ranks"] for row in trained if row["backend"] == "keras"] == [2]
    assert min(row["accuracy"] for row in trained) >= 0.95
    assert {row["backend"] for row in report["bandwidth"]} == {"ddl", "gloo"}
    assert (tmp_path / "junit.xml").is_file()
    assert "<svg" in (tmp_path / "report.html").read_text()


def test_the_caller_s_python_path_does_not_reach_in(prefix: Path, tmp_path: Path) -> None:
    (tmp_path / "numpy.py").write_text("raise SystemExit('the wrong numpy')\n")
    status, errors = smoke("--parts", "versions", environ={"PYTHONPATH": str(tmp_path)})
    assert status == 0, errors


def test_a_shadowed_package_is_a_failed_part(prefix: Path, tmp_path: Path) -> None:
    """Inside the environment, where the user's variables do reach in."""
    (tmp_path / "pydantic.py").write_text("")
    done = run(
        [str(prefix / "bin" / "ddlce-smoke"), "--parts", "versions", "--json"],
        env={**clean_environment(prefix, os.environ), "PYTHONPATH": str(tmp_path)},
    )
    assert done.returncode == 1
    cases = {case["name"]: case for case in json.loads(done.stdout)["parts"][0]["cases"]}
    assert cases["pydantic"]["outcome"] == "failed"
    assert f"comes from {tmp_path}/pydantic.py" in cases["pydantic"]["message"]


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_the_documented_training_command(prefix: Path, ranks: int) -> None:
    done = run(
        ["ddlrun", "-H", f"localhost:{ranks}", "python", "-m", "ddl_ce_smoke.train"],
        executable=str(prefix / "bin" / "ddlrun"),
        env=clean_environment(prefix, os.environ),
    )
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines() if "identical" in line]
    assert [row[1] for row in rows] == [str(n) for n in (1, 2, 4) if n <= ranks]
    assert all(float(row[2].rstrip("%")) >= 95 for row in rows)


def test_what_it_concludes(prefix: Path, tmp_path: Path) -> None:
    files = [f"test_{name}.py" for name in ("runs", "hosts", "reports", "train_lms")]
    run_suite(prefix, SUITE_TESTS, tmp_path, *files)


def test_faults_fail_the_run(prefix: Path, tmp_path: Path) -> None:
    chosen = ("test_faults.py", "-k", "(early and kill) or (hangs and stop)")
    assert "2 passed" in run_suite(prefix, SUITE_TESTS, tmp_path, *chosen)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_suite_s_own_tests_pass_in_the_environment(prefix: Path, tmp_path: Path) -> None:
    """Among them: corrupted results, a killed, a hanging and a failing rank, an interrupt."""
    run_suite(prefix, SUITE_TESTS, tmp_path)
