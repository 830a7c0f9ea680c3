"""Keras on each of its backends: the one table of table_backends.py, run on each."""

import pytest
from keras_backends import (  # noqa: F401
    BACKENDS,
    has,
    outcome,
    pytest_generate_tests,
    test_case,
    test_the_run_ends_well,
)
from rank_cases import Run

TABLE = "table_backends.py"
ENV: dict[str, str] = {}

FAILS = """
import os, sys
import ddl, keras, numpy as np
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
model.compile(optimizer="adam", loss="mse")
class Fail(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        if batch == 3 and ddl.rank() == 1:
            os.kill(os.getpid(), 9)
model.fit(np.ones((40, 4)), np.ones((40, 2)), batch_size=4, verbose=0, callbacks=[Fail()])
"""


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_a_rank_that_is_killed_ends_the_job(ddlrun: Run, backend: str) -> None:
    has(backend)
    result = ddlrun(3, code=FAILS, env={"KERAS_BACKEND": backend})
    assert result.returncode == 137
    assert "rank 1 on localhost was killed by SIGKILL" in result.stderr


BRANCHES = """
import sys
import ddl, keras, numpy as np
from branches import Branches
model = Branches(5, ddl.rank() % 2, is_dense=False)
sgd = keras.optimizers.SGD(0.1, gradient_accumulation_steps=int(sys.argv[1]) or None)
model.compile(sgd, "mse")
model.fit(np.ones((8, 5)), np.ones((8, 3)), batch_size=2, verbose=0)
"""


@pytest.mark.parametrize("accumulated", ["0", "2"])
def test_graphs_with_gradients_of_other_variables_are_refused(
    ddlrun: Run, accumulated: str
) -> None:
    """The gradients have the same shapes, and would be averaged with each other."""
    has("tensorflow")
    env = {"KERAS_BACKEND": "tensorflow", "DDL_TIMEOUT": "8"}
    result = ddlrun(2, accumulated, code=BRANCHES, env=env)
    assert result.returncode != 0
    assert "/without 2,3,4,5" in result.stderr, result.stderr[-4000:]


DISTRIBUTION = """
import ddl, jax, keras, numpy as np
if DISTRIBUTED:
    jax.distributed.initialize()
devices = keras.distribution.list_devices()
keras.distribution.set_distribution(keras.distribution.DataParallel(
    devices=devices, auto_shard_dataset=False))
keras.utils.set_random_seed(1)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
model.compile("sgd", "mse")
x = np.random.default_rng(ddl.rank()).random((8, 4))
model.fit(x, np.ones((8, 2)), batch_size=4, verbose=0)
print("total", float(keras.ops.sum(model.layers[0].kernel.value)), flush=True)
"""


def test_a_distribution_over_one_process_s_devices_is_refused(ddlrun: Run) -> None:
    """With `jax.distributed.initialize()` the ranks train together; else each would by itself."""
    has("jax")
    env = {"KERAS_BACKEND": "jax"}
    result = ddlrun(2, code="DISTRIBUTED = False" + DISTRIBUTION, env=env)
    assert result.returncode != 0
    assert "over the devices of this process alone" in result.stderr, result.stderr[-4000:]
    assert "total" not in result.stdout
    result = ddlrun(2, code="DISTRIBUTED = True" + DISTRIBUTION, env=env)
    assert result.returncode == 0, result.stderr[-4000:]
    totals = [line.split("total")[1] for line in result.stdout.splitlines() if "total" in line]
    assert len(totals) == 2, result.stdout
    assert len(set(totals)) == 1, totals


def test_jax_without_ddl_jax_is_refused_by_a_sentence(ddlrun: Run) -> None:
    pytest.importorskip("jax")
    code = "import sys; sys.modules['ddl_jax.functions'] = None\n" + FAILS
    result = ddlrun(2, code=code, env={"KERAS_BACKEND": "jax"})
    assert result.returncode != 0
    assert "Keras runs on jax, which needs the package ddl-jax" in result.stderr, result.stderr


HOROVOD = """
import ddl, keras, numpy as np
from horovod import keras as hvd
hvd.init()
keras.utils.set_random_seed(1)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2), keras.layers.Dense(2)])
first, last = model.layers
sgd = keras.optimizers.SGD(0.1)
model.compile(hvd.PartialDistributedOptimizer(sgd, local_layers=[first]), "mse")
x = np.random.default_rng(hvd.rank()).random((8, 4))
model.fit(x, np.ones((8, 2)), batch_size=4, verbose=0)
total = lambda layer: keras.ops.convert_to_numpy(keras.ops.sum(layer.kernel))
print("own", total(first), flush=True)
print("common", total(last), flush=True)
"""


@pytest.mark.parametrize("backend", BACKENDS)
def test_horovod_s_optimizers_are_left_alone(ddlrun: Run, backend: str) -> None:
    """A layer whose gradients are the rank's own stays so, though ddl has been imported."""
    has(backend)
    pytest.importorskip("horovod")
    result = ddlrun(2, code=HOROVOD, env={"KERAS_BACKEND": backend})
    assert result.returncode == 0, result.stderr[-4000:]
    for word, number in (("own", 2), ("common", 1)):
        found = {line.split(word)[1] for line in result.stdout.splitlines() if f" {word} " in line}
        assert len(found) == number, result.stdout
