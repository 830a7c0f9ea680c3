"""Keras on each of its backends: the one table of table_backends.py, run on each."""

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from rank_cases import Result, Run

HERE = Path(__file__).parent
NAMES = re.findall(r"^@case\ndef (\w+)", (HERE / "table_backends.py").read_text(), re.M)
BACKENDS = ["tensorflow", "torch", "jax"]
RANKS = [2, pytest.param(4, marks=pytest.mark.slow)]
Outcome = tuple[Result, list[set[str]]]

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


def has(backend: str) -> None:
    pytest.importorskip("ddl_jax" if backend == "jax" else backend)


@pytest.fixture(scope="module")
def outcome(ddlrun: Run, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Outcome]:
    @cache
    def run(backend: str, ranks: int) -> Outcome:
        folder = tmp_path_factory.mktemp(f"{backend}{ranks}")
        env = {"KERAS_BACKEND": backend}
        result = ddlrun(ranks, "table_backends.py", str(folder), env=env)
        files = [folder / str(rank) for rank in range(ranks)]
        return result, [set(f.read_text().split() if f.exists() else ()) for f in files]

    return run


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", NAMES)
def test_case(outcome: Callable[..., Outcome], backend: str, name: str, ranks: int) -> None:
    has(backend)
    result, passed = outcome(backend, ranks)
    missing = [rank for rank in range(ranks) if name not in passed[rank]]
    assert not missing, f"not passed on ranks {missing}; {result.stderr[-4000:]}"


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_the_run_ends_well(outcome: Callable[..., Outcome], backend: str, ranks: int) -> None:
    has(backend)
    result, _ = outcome(backend, ranks)
    assert result.returncode == 0, result.stderr[-4000:]


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_a_rank_that_is_killed_ends_the_job(ddlrun: Run, backend: str) -> None:
    has(backend)
    result = ddlrun(3, code=FAILS, env={"KERAS_BACKEND": backend})
    assert result.returncode == 137
    assert "rank 1 on localhost was killed by SIGKILL" in result.stderr


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
