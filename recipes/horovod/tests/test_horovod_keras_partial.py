"""Horovod's Keras on each backend: what is a rank's own, and gradients of several batches."""

from keras_backends import (  # noqa: F401
    outcome,
    pytest_generate_tests,
    test_case,
    test_the_run_ends_well,
)

TABLE = "hvd_partial.py"
ENV = {"HOROVOD_DYNAMIC_PROCESS_SETS": "1"}
