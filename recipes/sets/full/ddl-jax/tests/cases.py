"""Run by ddlrun: every case on every rank, against NumPy.

Usage: cases.py RESULTS; rank r writes the names of the cases that it passed to RESULTS/r.
"""

import sys
from pathlib import Path

import cases_functions  # noqa: F401
import cases_gradients  # noqa: F401
import cases_meshes  # noqa: F401
import cases_types  # noqa: F401
from harness import CASES, RANK


def main() -> None:
    passed = []
    try:
        for function in CASES:
            function()
            passed.append(function.__name__)
    finally:
        (Path(sys.argv[1]) / str(RANK)).write_text("\n".join(passed))


if __name__ == "__main__":
    main()
