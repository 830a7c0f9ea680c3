"""`ddlrun -script ... -submit`: what batch systems answer, and where there is none."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from ddl.launch.script.systems import SYSTEMS

from conftest import Result

Ddlrun = Callable[..., Result]


@pytest.mark.parametrize(
    ("system", "program"),
    [("slurm", "sbatch"), ("lsf", "bsub"), ("pbs", "qsub"), ("mpijob", "kubectl")],
)
def test_a_batch_system_that_is_not_there(
    ddlrun: Ddlrun, tmp_path: Path, system: str, program: str
) -> None:
    # Nothing of the current folder is taken for it.
    (tmp_path / program).write_text("#!/bin/sh\ntouch bad\n")
    (tmp_path / program).chmod(0o755)
    image = ["-image", "x"] if system == "mpijob" else []
    done = ddlrun(
        *("-script", system, "-N", "2", *image, "-output", "job", "-submit", "true"),
        env={"PATH": f"/nowhere:.:{Path(shutil.which('true') or '').parent / 'nothing'}"},
    )
    assert done.returncode == 2
    assert f"-submit: {program} of {SYSTEMS[system].title} is not on PATH\n" in done.stderr
    assert not (tmp_path / "bad").exists()
    assert not (tmp_path / "job").exists()


# As these programs are documented to answer. Slurm's own answers in the lab's tests.
ANSWERS = {
    "lsf": ("bsub", "Job <4711> is submitted to queue <normal>.", "4711"),
    "pbs": ("qsub", "4711.head.example", "4711.head.example"),
}


@pytest.mark.parametrize("system", ANSWERS)
def test_the_answers_of_batch_systems_that_cannot_be_had(
    ddlrun: Ddlrun, tmp_path: Path, system: str
) -> None:
    program, answer, number = ANSWERS[system]
    folder = tmp_path / "bin"
    folder.mkdir()
    env = {"PATH": f"{folder}:{os.environ['PATH']}"}
    words = ["-script", system, "-N", "2", "-module", "none", "true"]
    text = ddlrun(*words).stdout

    def answers(script: str) -> Result:
        (folder / program).write_text(f"#!/bin/sh\ncat >{folder}/taken\n{script}\n")
        (folder / program).chmod(0o755)
        return ddlrun("-submit", *words, env=env)

    done = answers(f"echo '{answer}'")
    assert (done.returncode, done.stdout) == (0, f"{number}\n"), done.stderr
    assert (folder / "taken").read_text() == text
    done = answers("echo 'no such queue' >&2; exit 255")
    assert done.returncode == 2
    assert f"{program} refuses the job (exit status 255): no such queue\n" in done.stderr
    done = answers("echo 'all is well'")
    assert done.returncode == 2
    assert f"{program} names no job: 'all is well'\n" in done.stderr
    (folder / program).write_text("#!/nowhere\n")
    done = ddlrun("-submit", *words, env=env)
    assert done.returncode == 2
    assert f"cannot run {folder}/{program}: No such file" in done.stderr
