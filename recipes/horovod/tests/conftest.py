"""Runs programs on real ranks by the ddlrun of the python that runs these tests."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent

Result = subprocess.CompletedProcess[str]
Run = Callable[..., Result]
# What each rank says of each case, and how the job ended.
Outcome = tuple[Result, list[dict[str, str]]]
RunCases = Callable[..., Outcome]

# A rank that does not come is waited for this long, then the job ends with Horovod's own error.
STALLS = {
    "HOROVOD_STALL_CHECK_TIME_SECONDS": "15",
    "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "30",
}
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2", "TF_ENABLE_ONEDNN_OPTS": "0", "OMP_NUM_THREADS": "1"}


def names(module: str) -> list[str]:
    """The cases of a module, found without running it: it needs its framework."""
    return re.findall(r"^@case\ndef (\w+)", (HERE / f"{module}.py").read_text(), re.M)


def check(outcome: Outcome, name: str, ranks: int) -> None:
    """Fails unless all ranks have passed the case; says what each of the others did."""
    result, ends = outcome
    wrong = [f"rank {r}: {ends[r].get(name, 'not begun')}" for r in range(ranks)]
    wrong = [words for words in wrong if not words.endswith(": passed")]
    assert not wrong, "\n".join([*wrong, "the job's last words:", result.stderr[-2000:]])


@pytest.fixture(scope="session")
def ddlrun() -> Run:
    """Runs a script beside these tests, or code, on some ranks of this host."""

    def run(
        ranks: int,
        *words: str,
        code: str = "",
        env: dict[str, str] | None = None,
        timeout: int = 300,
    ) -> Result:
        program = ["-c", code, *words] if code else [str(HERE / words[0]), *words[1:]]
        return subprocess.run(
            [
                str(Path(sys.executable).with_name("ddlrun")),
                *("-H", f"localhost:{ranks}", "-timeout", str(timeout)),
                *(sys.executable, *program),
            ],
            capture_output=True,
            text=True,
            timeout=timeout + 30,
            env=os.environ | QUIET | STALLS | (env or {}),
            check=False,
        )

    return run


@pytest.fixture(scope="session")
def run_cases(ddlrun: Run, tmp_path_factory: pytest.TempPathFactory) -> RunCases:
    """Runs the cases of some modules in one job."""

    def run(
        ranks: int, framework: str, *modules: str, env: dict[str, str] | None = None
    ) -> Outcome:
        folder = tmp_path_factory.mktemp(f"{framework}{ranks}")
        dynamic = {"HOROVOD_DYNAMIC_PROCESS_SETS": "1"}
        words = ("hvd_cases.py", str(folder), framework, *modules)
        result = ddlrun(ranks, *words, env=dynamic | (env or {}))
        files = [folder / str(rank) for rank in range(ranks)]
        lines = [file.read_text().splitlines() if file.exists() else [] for file in files]
        return result, [dict(json.loads(line) for line in own) for own in lines]

    return run
