"""Runs programs on real ranks by the ddlrun of the python that runs these tests."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent

Result = subprocess.CompletedProcess[str]
Run = Callable[..., Result]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: runs in `make test-full` only")


@pytest.fixture(scope="session")
def ddlrun() -> Run:
    """Runs python with these arguments on some ranks of this host, all of them workers."""

    def run(ranks: int, *words: str, options: tuple[str, ...] = ("-tf_config",)) -> Result:
        return subprocess.run(
            [
                str(Path(sys.executable).with_name("ddlrun")),
                *("-H", f"localhost:{ranks}", "-timeout", "540", *options),
                *(sys.executable, *words),
            ],
            capture_output=True,
            text=True,
            timeout=570,
            check=False,
        )

    return run
