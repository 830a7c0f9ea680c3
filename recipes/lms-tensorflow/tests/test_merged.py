"""With oneDNN, too, `fit` with LMS gives to the last bit what it gives without."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def test_what_onednn_computes_as_one_stays_one() -> None:
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("merged.py")],
        capture_output=True,
        text=True,
        env=os.environ | {"TF_ENABLE_ONEDNN_OPTS": "1"},
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
