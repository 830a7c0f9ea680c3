"""TensorFlow's own ParameterServerStrategy under ddlrun, in the built environment."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ddlce.smoke import clean_environment
from support.run import run

pytestmark = [pytest.mark.built, pytest.mark.timeout(200)]

PROGRAM = Path(__file__).parent / "programs" / "parameter_server.py"


def test_two_workers_learn_on_a_parameter_server(prefix: Path) -> None:
    done = run(
        [
            *(str(prefix / "bin" / "ddlrun"), "-H", "localhost:4", "-tf_config", "-ps", "1"),
            *("-timeout", "150", str(prefix / "bin" / "python"), str(PROGRAM)),
        ],
        env=clean_environment(prefix, os.environ),
    )
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if "/job:ps" in line]
    assert line.split()[-5:] == [
        *("/job:ps/replica:0/task:0/device:CPU:0", "1.000", "2.000", "3.000", "4.000")
    ]
