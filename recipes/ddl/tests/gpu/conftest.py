"""Ranks on real GPUs: needs the CUDA variant of ddl, a torch with CUDA, and a GPU.

    python -m pytest recipes/ddl/tests/gpu

Without one of these every test is skipped, and says which is missing. `src/README.md` has what the
machine needs.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs"
MPIEXEC = Path(sys.executable).parent / "mpiexec"

Result = subprocess.CompletedProcess[str]
Launch = Callable[..., Result]


def count_gpus() -> tuple[int, str]:
    """The number of GPUs, and the reason when there is none that could be used."""
    try:
        from ddl import _core
    except ImportError as error:
        return 0, f"ddl cannot be imported: {error}"
    if not _core.cuda_library():
        return 0, "this ddl was built without CUDA"
    try:
        import torch
    except ImportError as error:
        return 0, f"torch cannot be imported: {error}"
    if not torch.cuda.is_available():
        return 0, "torch sees no GPU"
    return torch.cuda.device_count(), ""


GPUS, WHY_NONE = count_gpus()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if WHY_NONE:
        for item in items:
            item.add_marker(pytest.mark.skip(reason=WHY_NONE))


def needs_gpus(n: int) -> pytest.MarkDecorator:
    """A mark for what needs `n` GPUs."""
    return pytest.mark.skipif(
        not WHY_NONE and n > GPUS, reason=f"needs {n} GPUs, but this machine has {GPUS}"
    )


@pytest.fixture
def launch() -> Launch:
    """Runs a program of programs/ on n ranks, on pretended hosts, with small chunks."""

    def run(
        program: str,
        *arguments: str,
        n: int,
        hosts: int = 0,
        chunk: int = 0,
        options: str = "",
        timeout: float = 0,
    ) -> Result:
        env = {name: value for name, value in os.environ.items() if not name.startswith("DDL_")}
        wanted = {
            "DDL_FAKE_HOSTS": hosts,
            "DDL_SHM_CHUNK": chunk,
            "DDL_OPTIONS": options,
            "DDL_TIMEOUT": timeout,
        }
        env |= {name: str(value) for name, value in wanted.items() if value}
        script = PROGRAMS / f"{program}.py"
        return subprocess.run(
            [str(MPIEXEC), "-n", str(n), sys.executable, str(script), *arguments],
            env=env,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    return run


@pytest.fixture
def passes(launch: Launch) -> Launch:
    """As `launch`, and the program must end well on every rank."""

    def run(program: str, *arguments: str, **options: object) -> Result:
        result = launch(program, *arguments, **options)
        assert result.returncode == 0, result.stdout + result.stderr
        return result

    return run
