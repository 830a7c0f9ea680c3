"""Runs programs on real ranks by the ddlrun of the python that runs these tests."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent

Result = subprocess.CompletedProcess[str]
Run = Callable[..., Result]


@pytest.fixture(scope="session")
def ddlrun() -> Run:
    """Runs a script beside these tests, or code, on some ranks of this host."""

    def run(ranks: int, *words: str, code: str = "", env: dict[str, str] | None = None) -> Result:
        program = ["-c", code, *words] if code else [str(HERE / words[0]), *words[1:]]
        return subprocess.run(
            [
                str(Path(sys.executable).with_name("ddlrun")),
                *("-H", f"localhost:{ranks}", "-timeout", "540"),
                *(sys.executable, *program),
            ],
            capture_output=True,
            text=True,
            timeout=570,
            env=os.environ | (env or {}),
            check=False,
        )

    return run
