"""Whether models of transformers fit, without a GPU: some twenty configurations, by name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ddlce.smoke import clean_environment
from support.releases import installed
from support.run import ok, run

pytestmark = [pytest.mark.built, pytest.mark.slow, pytest.mark.timeout(3600)]

PROGRAM = Path(__file__).parent / "programs" / "lms_configurations.py"


@pytest.fixture(scope="module")
def full() -> Path:
    """The environment of `ddl-ce-full`, which has transformers."""
    return installed("ddl-ce-full", "make full")


def test_each_has_a_plan_below_its_demand(full: Path, tmp_path: Path) -> None:
    environment = clean_environment(full, os.environ)
    done = ok(run([full / "bin" / "python", PROGRAM], cwd=tmp_path, env=environment))
    assert len(done.stdout.splitlines()) >= 20


def test_mistakes_name_what_is_there(full: Path, tmp_path: Path) -> None:
    for words, says in (
        (["LlamConfig"], "no configuration LlamConfig; near are LlamaConfig"),
        (["LlamaConfig", "--set", "layers=2"], "LlamaConfig has no setting layers"),
    ):
        command = [full / "bin/python", "-m", "lms", *words, "--batch", "1", "--gpu", "H100"]
        done = run(command, cwd=tmp_path, env=clean_environment(full, os.environ))
        assert done.returncode == 1
        (line,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
        assert says in line
