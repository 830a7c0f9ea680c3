"""The example, as the user guide starts it."""

from __future__ import annotations

import subprocess
import sys


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "lms_tensorflow.example", *words],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_it_trains_within_a_share_of_the_memory() -> None:
    done = run("--share", "0.6")
    assert done.returncode == 0, done.stderr
    assert "LMS: CPU:0 -> CPU:1, limit" in done.stdout
    assert "losses with it:" in done.stdout


def test_a_share_that_is_too_small_is_told() -> None:
    done = run("--share", "0.01")
    assert done.returncode == 1
    assert "error: LMS: the limit of" in done.stderr
    assert "Traceback" not in done.stderr
