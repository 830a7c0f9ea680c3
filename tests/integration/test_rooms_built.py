"""The tests that stand in the recipes' rooms, on the packages of the built environment.

Real ranks, real launches, and everything that must fail: other shapes on other ranks, a killed, a
hanging and a failing rank, hosts that cannot be reached.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ddlce.env.layout import Layout
from ddlce.settings import load_settings
from support.suites import run_suite

pytestmark = [pytest.mark.built, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def prefix() -> Path:
    """The default release of ddl-ce."""
    current = Layout(load_settings().root).current("ddl-ce")
    assert current, "there is no built environment: run `make` first"
    return current


@pytest.mark.parametrize("room", ["ddl/tests/launch", "ddl-torch/tests"])
def test_the_room_s_tests_pass(prefix: Path, tmp_path: Path, room: str) -> None:
    run_suite(prefix, room, tmp_path)


def test_ranks_that_fail(prefix: Path, tmp_path: Path) -> None:
    run_suite(prefix, "ddl/tests/ranks", tmp_path, "test_failures.py")


@pytest.mark.slow
def test_collectives_on_pretended_hosts(prefix: Path, tmp_path: Path) -> None:
    run_suite(prefix, "ddl/tests/ranks", tmp_path, "test_collectives.py")
