"""Run by ddlrun: every case on every rank.

Usage: cases.py RESULTS; rank r writes the names of the cases that it passed to RESULTS/r.
"""

import sys

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
from ranked import run_cases  # noqa: E402

if __name__ == "__main__":
    run_cases(sys.argv[1])
