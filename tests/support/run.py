"""Running a program for its words."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import Any

#: A program that has ended, with what it wrote as text.
Ran = subprocess.CompletedProcess[str]


def run(command: str | Sequence[Any], **options: Any) -> Ran:
    """Run a program to its end; what it wrote is text, and its status is the caller's to judge."""
    return subprocess.run(command, capture_output=True, text=True, **{"check": False, **options})


def ok(done: Ran) -> Ran:
    """A program that has ended well; else the error is what it wrote."""
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done
