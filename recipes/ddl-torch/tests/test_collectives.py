"""Every operation on 1, 2 and 4 real ranks; cases.py has the operations themselves."""

import re
from functools import cache
from pathlib import Path

import pytest
from conftest import HERE, Result, Run

CASES = re.findall(r"^@case\ndef (\w+)", (HERE / "cases.py").read_text(), re.M)


@pytest.fixture(scope="session")
def outcome(ddlrun: Run, tmp_path_factory: pytest.TempPathFactory):
    """One run per number of ranks, for all cases."""

    @cache
    def run(ranks: int) -> tuple[Result, list[set[str]]]:
        folder: Path = tmp_path_factory.mktemp(f"ranks{ranks}")
        result = ddlrun(ranks, "cases.py", str(folder))
        passed = [
            set((folder / str(rank)).read_text().split()) if (folder / str(rank)).exists() else set()
            for rank in range(ranks)
        ]
        return result, passed

    return run


def test_there_are_cases() -> None:
    assert len(CASES) > 25


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("name", CASES)
def test_case(outcome, name: str, ranks: int) -> None:
    result, passed = outcome(ranks)
    missing = [rank for rank in range(ranks) if name not in passed[rank]]
    assert not missing, f"not passed on ranks {missing}; {result.stderr[-4000:]}"


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_the_run_ends_well(outcome, ranks: int) -> None:
    result, _ = outcome(ranks)
    assert result.returncode == 0, result.stderr[-4000:]
