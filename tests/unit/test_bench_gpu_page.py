"""The page of a machine with GPUs: steps that fail, hang or have nothing to run on."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from bench import gpu_page
from bench.gpu_page import Step, page, run
from support.run import run as run_program

PROGRAM = Path(gpu_page.__file__)


def in_prefix(folder: Path) -> Path:
    """An environment with this Python."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to(sys.executable)
    return folder


def step(code: str, needs: str = "json", seconds: float = 60) -> Step:
    return Step("one: a step", needs, [sys.executable, "-c", code], seconds)


def test_each_end_of_a_step_has_its_outcome(tmp_path: Path) -> None:
    prefix = in_prefix(tmp_path / "prefix")
    results = [
        run(prefix, step("print('fine')"), os.environ),
        run(prefix, step("import sys; sys.exit('bad')"), os.environ),
        run(prefix, step("import time; print('begun', flush=1); time.sleep(60)", "json", 1), {}),
        run(prefix, step("", "no_such_module"), os.environ),
        run(prefix, step("", "bin/no-such-program"), os.environ),
    ]
    assert [done.outcome for done in results] == [
        "passed",
        "ended with 1",
        "not done after 1 s",
        "left out: the environment has no no_such_module",
        "left out: the environment has no bin/no-such-program",
    ]
    assert [done.is_good for done in results] == [True, False, False, True, True]
    text = page("| GPUs | 1: simulated GPU |", results)
    assert "**Simulated: no GPU was there" in text
    assert "| one: a step | not done after 1 s | 1 |" in text
    assert "begun" in text
    assert "Simulated" not in page("| GPUs | 1: H100 |", results)


def test_a_wrong_prefix_is_one_message(tmp_path: Path) -> None:
    command = [sys.executable, PROGRAM, "--prefix", tmp_path, "--out", tmp_path / "out"]
    done = run_program([str(word) for word in command])
    assert done.returncode == 1
    assert done.stderr == f"error: --prefix {tmp_path}: there is no bin/python in it\n"
    assert not (tmp_path / "out").exists()


def test_a_prefix_without_torch_is_told(tmp_path: Path) -> None:
    prefix = in_prefix(tmp_path / "prefix")
    command = [sys.executable, PROGRAM, "--prefix", prefix, "--out", tmp_path / "out"]
    done = run_program([str(word) for word in command])
    assert done.returncode == 1
    assert "it has no torch and ddl that work: ModuleNotFoundError: No module" in done.stderr
    assert "Traceback" not in done.stderr
