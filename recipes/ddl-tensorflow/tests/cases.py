"""Run by ddlrun: every case on every rank.

Usage: cases.py RESULTS; rank r writes the names of the cases that it passed to RESULTS/r.
"""

import sys
from pathlib import Path

import ddl  # noqa: F401 (before Keras and TensorFlow: it needs neither)

assert not {"tensorflow", "keras", "ddl._core"} & set(sys.modules), "import ddl must stay light"

import cases_callbacks  # noqa: E402, F401
import cases_data  # noqa: E402, F401
import cases_faults  # noqa: E402, F401
import cases_fit  # noqa: E402, F401
import cases_gradients  # noqa: E402, F401
import cases_keras2  # noqa: E402, F401
import cases_move  # noqa: E402, F401
import cases_optimizers  # noqa: E402, F401
import cases_reduce  # noqa: E402, F401
import cases_refused  # noqa: E402, F401
import cases_tf1  # noqa: E402, F401
from harness import CASES, RANK  # noqa: E402


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
