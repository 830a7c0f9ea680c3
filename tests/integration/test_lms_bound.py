"""The linear program that bounds the plans of Large Model Support."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.run import ok, run

pytestmark = [pytest.mark.built, pytest.mark.slow, pytest.mark.timeout(900)]

HERE = Path(__file__).parent


def test_no_plan_is_faster_than_the_bound(prefix: Path, tmp_path: Path) -> None:
    program = HERE / "programs" / "lms_bound_holds.py"
    done = ok(run([prefix / "bin/python", program, HERE.parent / "bench", "200"], cwd=tmp_path))
    compared, repeated = map(int, done.stdout.split())
    assert compared > 60
    assert repeated > 10
