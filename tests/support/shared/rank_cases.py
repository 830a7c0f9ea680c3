"""Programs on real ranks, and each case of a recipe's `cases_*.py` on 1, 2 and 4 of them.

`run_suite` puts this folder on the path of a recipe's tests. Their conftest.py makes `ddlrun` by
`ddlrun_for`, and their test_collectives.py imports the tests that stand here.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

Result = subprocess.CompletedProcess[str]
Run = Callable[..., Result]
# How the job ended, and the cases that each rank has passed.
Outcome = Callable[[int], tuple[Result, list[set[str]]]]

_CASE = re.compile(r"^@case(?:_since\(.*\))?\ndef (\w+)", re.M)


def ddlrun_for(folder: Path) -> Run:
    """Runs a script of `folder`, or code, on some ranks of this host."""

    def run(
        ranks: int,
        *words: str,
        code: str = "",
        env: dict[str, str] | None = None,
        options: tuple[str, ...] = ("-timeout", "540"),
    ) -> Result:
        program = ["-c", code, *words] if code else [str(folder / words[0]), *words[1:]]
        return subprocess.run(
            [
                str(Path(sys.executable).with_name("ddlrun")),
                *("-H", f"localhost:{ranks}", *options),
                *(sys.executable, *program),
            ],
            capture_output=True,
            text=True,
            timeout=570,
            env=os.environ | (env or {}),
            check=False,
        )

    return run


def cases_of(folder: Path) -> dict[str, list[str]]:
    """The cases of each file, found without running it: it needs its framework."""
    files = sorted(folder.glob("cases_*.py"))
    return {file.name: _CASE.findall(file.read_text()) for file in files}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "name" in metafunc.fixturenames:
        cases = cases_of(metafunc.definition.path.parent)
        metafunc.parametrize("name", [name for names in cases.values() for name in names])


@pytest.fixture(scope="session")
def outcome(ddlrun: Run, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """One run per number of ranks, for all cases."""

    @cache
    def run(ranks: int) -> tuple[Result, list[set[str]]]:
        folder: Path = tmp_path_factory.mktemp(f"ranks{ranks}")
        result = ddlrun(ranks, "cases.py", str(folder))
        files = [folder / str(rank) for rank in range(ranks)]
        passed = [set(file.read_text().split() if file.exists() else ()) for file in files]
        return result, passed

    return run


def test_every_file_has_cases(request: pytest.FixtureRequest) -> None:
    cases = cases_of(request.path.parent)
    assert sum(map(len, cases.values())) > 20
    assert all(cases.values()), cases


# The package's own test (package.sh) runs all of them when it is built.
RANKS = [
    pytest.param(1, marks=pytest.mark.slow),
    2,
    pytest.param(4, marks=pytest.mark.slow),
]


@pytest.mark.parametrize("ranks", RANKS)
def test_case(outcome: Outcome, name: str, ranks: int) -> None:
    result, passed = outcome(ranks)
    missing = [rank for rank in range(ranks) if name not in passed[rank]]
    assert not missing, f"not passed on ranks {missing}; {result.stderr[-4000:]}"


@pytest.mark.parametrize("ranks", RANKS)
def test_the_run_ends_well(outcome: Outcome, ranks: int) -> None:
    result, _ = outcome(ranks)
    assert result.returncode == 0, result.stderr[-4000:]
