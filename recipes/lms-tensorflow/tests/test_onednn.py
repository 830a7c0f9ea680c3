"""With oneDNN: the same to the last bit as without LMS, and what kernels take is counted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    "program",
    [
        "merged.py",  # what oneDNN computes as one stays one
        pytest.param("mobilenet.py", marks=pytest.mark.slow),  # Keras' own, with all of `fit`
        "temporaries.py",  # no limit is passed by what kernels take beside their results
    ],
)
def test_a_program_finds_nothing(program: str) -> None:
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name(program)],
        capture_output=True,
        text=True,
        env=os.environ | {"TF_ENABLE_ONEDNN_OPTS": "1"},
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
