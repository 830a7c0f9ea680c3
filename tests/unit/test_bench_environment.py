"""The environment that is measured: the benchmarks that start its programs look for them first."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bench import bench_fusion, bench_keras, bench_timeline, bench_types
from bench.environment import environment_with
from support.run import run


@pytest.mark.parametrize(
    ("script", "program"),
    [
        (bench_fusion.__file__, "mpiexec"),
        (bench_keras.__file__, "ddlrun"),
        (bench_timeline.__file__, "mpiexec"),
        (bench_types.__file__, "mpiexec"),
    ],
)
def test_a_prefix_without_the_program(script: str, program: str, tmp_path: Path) -> None:
    command = [sys.executable, script, "--prefix", str(tmp_path)]
    done = run(command)
    assert done.returncode == 1
    assert done.stderr == (
        f"error: there is no bin/{program} in {tmp_path}; run make, or give --prefix\n"
    )


def test_a_prefix_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "env" / "bin" / "ddlrun"
    program.parent.mkdir(parents=True)
    program.touch()
    monkeypatch.chdir(tmp_path)
    assert environment_with("ddlrun", Path("env")) == tmp_path / "env"
