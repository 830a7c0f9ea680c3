"""Every operation on 1, 2 and 4 real ranks; cases.py has the operations themselves."""

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from conftest import HERE, Result, Run

CASES = [
    name
    for file in sorted(HERE.glob("cases_*.py"))
    for name in re.findall(r"^@case\ndef (\w+)", file.read_text(), re.M)
]


Outcome = Callable[[int], tuple[Result, list[set[str]]]]


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


def test_there_are_cases() -> None:
    assert len(CASES) > 25


# The package's own test (package.sh) runs all of them when it is built.
RANKS = [
    pytest.param(1, marks=pytest.mark.slow),
    2,
    pytest.param(4, marks=pytest.mark.slow),
]


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("name", CASES)
def test_case(outcome: Outcome, name: str, ranks: int) -> None:
    result, passed = outcome(ranks)
    missing = [rank for rank in range(ranks) if name not in passed[rank]]
    assert not missing, f"not passed on ranks {missing}; {result.stderr[-4000:]}"


@pytest.mark.parametrize("ranks", RANKS)
def test_the_run_ends_well(outcome: Outcome, ranks: int) -> None:
    result, _ = outcome(ranks)
    assert result.returncode == 0, result.stderr[-4000:]
