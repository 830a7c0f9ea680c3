"""Ranks with companions that are killed, stopped and started at random."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ddlce.smoke import clean_environment
from support.run import ok, run

pytestmark = [pytest.mark.built, pytest.mark.timeout(3600)]

TESTS = Path(__file__).parents[2] / "recipes" / "ddl-torch" / "tests"


@pytest.mark.parametrize("events", [20, pytest.param(100, marks=pytest.mark.slow)])
def test_random_losses(prefix: Path, tmp_path: Path, events: int) -> None:
    """No hang, no wrong sum, and nothing left."""
    words = [prefix / "bin" / "python", TESTS / "companion_storm.py", str(events), "1"]
    done = ok(run(words, cwd=tmp_path, env=clean_environment(prefix, os.environ)))
    assert "on one host {" in done.stdout
    assert "between hosts {" in done.stdout
