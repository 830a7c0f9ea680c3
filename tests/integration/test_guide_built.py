"""The programs in the user guide run as they stand there, on the built environment."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from ddlce.smoke import clean_environment
from support.run import run

pytestmark = pytest.mark.built

GUIDE = Path(__file__).parents[2] / "docs" / "user"


def program(name: str) -> str:
    """The block of Python that begins with its name."""
    pages = "".join(page.read_text() for page in sorted(GUIDE.glob("*.md")))
    found: list[str] = re.findall(rf"^```python\n(# {name}\n.*?)^```$", pages, re.M | re.S)
    assert len(found) == 1, f"{name} is in the guide {len(found)} times"
    return found[0]


def test_sharded_training_and_its_checkpoint(prefix: Path, tmp_path: Path) -> None:
    (tmp_path / "fsdp.py").write_text(program("fsdp.py"))
    done = run(
        [prefix / "bin" / "ddlrun", "-H", "localhost:2", prefix / "bin" / "python", "fsdp.py"],
        cwd=tmp_path,
        env=clean_environment(prefix, os.environ),
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.count("sum of all rows: 24.0") == 2
    assert (tmp_path / "checkpoint" / ".metadata").exists()


def test_a_preempted_job_goes_on(prefix: Path, tmp_path: Path) -> None:
    (tmp_path / "preempted.py").write_text(program("preempted.py"))
    binaries = str(prefix / "bin")
    command = [f"{binaries}/ddlrun", "-H", "localhost:2", f"{binaries}/python", "preempted.py"]
    errors = tmp_path / "errors"
    for is_again in (False, True):
        with errors.open("w") as sink:
            job = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=sink,
                text=True,
                cwd=tmp_path,
                env=clean_environment(prefix, os.environ),
            )
            assert job.stdout is not None
            for line in job.stdout:
                if "step 100 " in line:
                    job.send_signal(signal.SIGUSR1)
            status = job.wait(120)
        said = errors.read_text()
        assert status == (0 if is_again else 75), said
        assert ("ddl.checkpoint: goes on after step 1" in said) == is_again
