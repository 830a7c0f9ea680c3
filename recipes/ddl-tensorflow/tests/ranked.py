"""The cases of a program that ddlrun starts: each rank runs all of them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
CASES: list[Callable[[], None]] = []


def case(function: Callable[[], None]) -> Callable[[], None]:
    CASES.append(function)
    return function


def run_cases(folder: str) -> None:
    """Run them; rank r writes the names of those that it passed to `folder`/r."""
    passed = []
    try:
        for function in CASES:
            function()
            passed.append(function.__name__)
    finally:
        (Path(folder) / str(RANK)).write_text("\n".join(passed))
