"""Horovod's Keras on each backend of Keras: the one table of hvd_backends.py, run on each."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from keras_backends import (  # noqa: F401
    has,
    outcome,
    pytest_generate_tests,
    test_case,
    test_the_run_ends_well,
)

from conftest import QUIET, Run

TABLE = "hvd_backends.py"
ENV = {"HOROVOD_DYNAMIC_PROCESS_SETS": "1"}


def test_another_backend_is_refused_by_a_sentence(ddlrun: Run) -> None:
    pytest.importorskip("jax", reason="Keras's backend for NumPy imports JAX")
    result = ddlrun(1, code="import horovod.keras", env={"KERAS_BACKEND": "numpy"})
    assert result.returncode != 0
    assert "set KERAS_BACKEND to tensorflow, torch or jax" in result.stderr, result.stderr


TRAINS = """
import numpy as np
from horovod import keras as hvd
import keras
hvd.init()
keras.utils.set_random_seed(1)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
x = np.random.default_rng(hvd.rank()).random((8, 4))
model.fit(x, np.ones((8, 2)), batch_size=4, verbose=0)
print("total", float(keras.ops.convert_to_numpy(model.layers[0].kernel).sum()), flush=True)
"""


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_without_mpi_ranks_train_together_or_not_at_all(backend: str) -> None:
    """Under `horovodrun --gloo`: ddl, which reduces on JAX, takes each rank for a job of one."""
    has(backend)
    horovodrun = str(Path(sys.executable).with_name("horovodrun"))
    result = subprocess.run(
        [horovodrun, "--gloo", "-np", "2", sys.executable, "-c", TRAINS],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=os.environ | QUIET | {"KERAS_BACKEND": backend},
    )
    totals = [line.split("total")[1] for line in result.stdout.splitlines() if "total" in line]
    if backend == "jax":
        assert result.returncode != 0
        assert "ddl, which has 1 ranks where Horovod has 2" in result.stderr + result.stdout
        assert not totals, totals
    else:
        assert result.returncode == 0, result.stderr[-4000:]
        assert len(totals) == 2, result.stdout
        assert len(set(totals)) == 1, totals
