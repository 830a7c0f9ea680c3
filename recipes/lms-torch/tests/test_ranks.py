"""LMS on several real ranks: the cases of `ranks.py`, on gloo and on ddl."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import lms
import pytest

HERE = Path(__file__).parent
CASES = re.findall(r"^@case\ndef (\w+)", (HERE / "ranks.py").read_text(), re.M)
RANKS = 2


def outcome(
    folder: Path, command: list[str], variables: list[dict[str, str]]
) -> list[tuple[int, str]]:
    """Status and errors of a process for each of `variables`.

    Errors go through files: a rank that waits for its reader would keep the others waiting.
    """
    files = [folder / f"errors{number}" for number in range(len(variables))]
    sources = str(Path(lms.__file__).parents[1])
    path = os.pathsep.join([sources, *filter(None, [os.environ.get("PYTHONPATH")])])
    running = [
        subprocess.Popen(
            command,
            env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"} | more,
            stderr=file.open("w"),
        )
        for file, more in zip(files, variables, strict=True)
    ]
    try:
        statuses = [one.wait(timeout=540) for one in running]
    finally:
        for one in running:
            one.kill()
    return [(status, file.read_text()) for status, file in zip(statuses, files, strict=True)]


@pytest.fixture(scope="session")
def passed(tmp_path_factory: pytest.TempPathFactory) -> object:
    """For a backend the cases that passed on each rank, and what the ranks said."""

    @cache
    def run(backend: str) -> tuple[list[set[str]], list[tuple[int, str]]]:
        folder = tmp_path_factory.mktemp(backend)
        program = [sys.executable, str(HERE / "ranks.py"), backend, str(folder)]
        if backend == "ddl":
            launcher = str(Path(sys.executable).with_name("ddlrun"))
            said = outcome(folder, [launcher, "-H", f"localhost:{RANKS}", *program], [{}])
        else:
            with socket.create_server(("127.0.0.1", 0)) as free:
                port = str(free.getsockname()[1])
            common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(RANKS)}
            said = outcome(folder, program, [common | {"RANK": str(rank)} for rank in range(RANKS)])
        files = [folder / str(rank) for rank in range(RANKS)]
        return [set(file.read_text().split() if file.exists() else ()) for file in files], said

    return run


BACKENDS = [
    "gloo",
    pytest.param(
        "ddl", marks=pytest.mark.skipif(not find_spec("ddl_torch"), reason="without ddl-torch")
    ),
]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", CASES)
def test_case(passed: object, name: str, backend: str) -> None:
    ranks, said = passed(backend)  # type: ignore[operator]
    missing = [rank for rank in range(RANKS) if name not in ranks[rank]]
    assert not missing, f"not passed on ranks {missing}; {[text[-2000:] for _, text in said]}"


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_run_ends_well(passed: object, backend: str) -> None:
    _, said = passed(backend)  # type: ignore[operator]
    assert all(status == 0 for status, _ in said), [text[-2000:] for _, text in said]


def test_there_are_cases() -> None:
    assert len(CASES) >= 7
