"""How ddl and Keras come together, and what happens when a rank fails."""

import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import ddl_tensorflow
import pytest
from rank_cases import Result, Run

FIT = """
import os, sys, time
import ddl, keras, numpy as np
{before}
rank = ddl.rank()
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
model.compile(optimizer={optimizer}, loss="mse")
class Fail(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        if batch == 3 and rank == 1:
            {failure}
try:
    model.fit(np.ones((40, 4)), np.ones((40, 2)), batch_size=4, verbose=0, callbacks=[Fail()])
except Exception as error:
    said = f"ended: {{type(error).__name__}} {{error}}"
    with open(os.environ.get("SAID", os.devnull), "w") as file:
        file.write(said)
    print(said)
    sys.exit(3)
print("weights", float(np.abs(model.get_weights()[0]).sum()))
"""


def program(failure: str = "pass", optimizer: str = "'adam'", before: str = "") -> str:
    return FIT.format(failure=failure, optimizer=optimizer, before=before)


def alone(code: str, **env: str) -> Result:
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=os.environ | env,
    )


def weights(result: Result) -> set[str]:
    assert result.returncode == 0, result.stderr[-4000:]
    return {line.split("weights ")[1] for line in result.stdout.splitlines() if "weights" in line}


@pytest.mark.parametrize("first", ["keras", "tensorflow", "tf_keras_lazily"])
def test_the_order_of_imports_does_not_matter(ddlrun: Run, first: str) -> None:
    """Keras before ddl, and Keras as TensorFlow loads it."""
    imports = {
        "keras": "import keras",
        "tensorflow": "import tensorflow",
        "tf_keras_lazily": "import ddl; import tensorflow as tf; tf.keras.layers",
    }
    result = ddlrun(2, code=imports[first] + program())
    assert len(weights(result)) == 1


IMPORTED = """
import importlib, os, sys
for name in {before!r}:
    importlib.import_module(name)
def averages(module):
    importlib.import_module(module)
    import keras
    from ddl_tensorflow import optimizers, sessions, tf1
    assert optimizers.KIND.always and tf1.KIND.always, "the optimizers do not average"
for module in {modules!r}:
    if os.fork() == 0:
        try:
            averages(module)
        except BaseException as error:
            print(f"{{module}}: {{error!r}}", flush=True)
            os._exit(1)
        os._exit(0)
    assert os.wait()[1] == 0
"""


@pytest.mark.parametrize("before", [[], ["tensorflow"], ["keras"], ["tf_keras"]])
def test_any_module_may_be_the_first(ddlrun: Run, before: list[str]) -> None:
    """TensorFlow hides errors that Keras's import meets: every rank would train alone."""
    folder = Path(ddl_tensorflow.__file__).parent
    found = pkgutil.walk_packages([str(folder)], "ddl_tensorflow.")
    modules = [one.name for one in found if "_ops" not in one.name and "jax" not in one.name]
    assert len(modules) > 15
    if not before:  # each loads TensorFlow
        modules = [one for one in modules if one.endswith(("reducing", "callbacks", "tf1"))]
    result = ddlrun(1, code=IMPORTED.format(before=before, modules=modules))
    assert result.returncode == 0, result.stdout + result.stderr[-2000:]


def test_keras_2_as_tensorflow_has_it(ddlrun: Run) -> None:
    pytest.importorskip("tf_keras")
    legacy = "import ddl, tensorflow as tf, numpy as np; keras = tf.keras"
    code = program().replace("import ddl, keras, numpy as np", legacy)
    check = "assert type(model).__module__.startswith('tf_keras'), model\n"
    result = ddlrun(2, code=code + check, env={"TF_USE_LEGACY_KERAS": "1"})
    assert len(weights(result)) == 1


def test_an_optimizer_is_wrapped_before_keras_is_imported(ddlrun: Run) -> None:
    code = "import ddl\nddl.wrap\n" + program(optimizer="ddl.wrap(keras.optimizers.Adam())")
    assert len(weights(ddlrun(2, code=code))) == 1


def test_ddl_alone_loads_neither_tensorflow_nor_keras() -> None:
    code = (
        "import sys, ddl\n"
        "assert 'ddl_tensorflow' in sys.modules\n"
        "assert not {'tensorflow', 'keras', 'ddl._core', 'torch'} & set(sys.modules)\n"
    )
    assert alone(code, DDL_OPTIONS="").returncode == 0


def test_without_a_launcher_there_is_one_rank() -> None:
    result = alone("import ddl; ddl.init()\n" + program())
    assert len(weights(result)) == 1


def test_without_ddl_options_only_a_wrapped_optimizer_averages(ddlrun: Run) -> None:
    """Both begin with their own weights; nobody asks for rank 0's where none averages."""
    without = "import os; os.environ.pop('DDL_OPTIONS', None)"
    begin = "ddl.init(); keras.utils.set_random_seed(ddl.rank())"
    result = ddlrun(2, code=without + program(before=begin))
    assert len(weights(result)) == 2
    wrapped = "ddl.DistributedOptimizer(keras.optimizers.Adam())"
    result = ddlrun(2, code=without + program(before=begin, optimizer=wrapped))
    assert len(weights(result)) == 1


def test_other_backends_of_keras_are_left_alone(ddlrun: Run) -> None:
    pytest.importorskip("jax")  # Keras's backend for NumPy imports it
    code = (
        "import ddl, keras\n"
        "from ddl_tensorflow import optimizers\n"
        "assert keras.config.backend() == 'numpy'\n"
        "assert not optimizers.KIND.always\n"
        "try: ddl.wrap(keras.optimizers.SGD())\n"
        "except RuntimeError as error: print(error)\n"
    )
    result = ddlrun(1, code=code, env={"KERAS_BACKEND": "numpy"})
    words = "Keras runs on numpy; set KERAS_BACKEND to one of tensorflow, torch, jax"
    assert words in result.stdout, result.stderr


def test_a_name_of_a_package_that_is_not_there_is_explained() -> None:
    code = (
        "import sys; sys.modules['ddl_tensorflow'] = None\n"
        "import ddl\n"
        "try: ddl.DDLCallback\n"
        "except AttributeError as error: print(error)\n"
    )
    result = alone(code)
    expected = (
        "ddl.DDLCallback is of the package ddl-tensorflow, which is not installed; install it"
    )
    assert expected in result.stdout, result.stderr


def test_tensorflow_gets_this_ranks_share_of_the_cores(ddlrun: Run) -> None:
    code = (
        "import os, ddl\n"
        "print('threads', os.environ['TF_NUM_INTRAOP_THREADS'], os.environ['OMP_NUM_THREADS'])"
    )
    lines = ddlrun(2, code=code).stdout.splitlines()
    assert len(lines) == 2
    for line in lines:
        intra, openmp = line.split("threads ")[1].split()
        assert intra == openmp
    result = ddlrun(1, code=code, env={"TF_NUM_INTRAOP_THREADS": "7"})
    assert "threads 7 " in result.stdout


def test_autograph_has_nothing_to_warn_of(ddlrun: Run, tmp_path: Path) -> None:
    """In a tf.function with each collective, in `fit`, and in a step of TensorFlow 1's."""
    file = tmp_path / "program.py"  # it translates no code that it cannot read
    code = program() + (
        "import tensorflow as tf\n"
        "calls = [ddl.allreduce, ddl.broadcast, ddl.bcast, ddl.allgather, ddl.reduce_scatter,\n"
        "         ddl.alltoall]\n"
        "def each(x):\n"
        "    for call in calls: call(x)\n"
        "    ddl.allreduce_n([x]); ddl.broadcast_n([x]); ddl.grads_reduce([(x, w)])\n"
        "    tf.compat.v1.train.GradientDescentOptimizer(1.0).apply_gradients([(x, w)])\n"
        "w = tf.Variable(tf.ones(2))\n"
        "tf.function(each)(tf.ones(2))\n"
        "print('weights', w.numpy())\n"
    )
    file.write_text(code)
    result = ddlrun(2, str(file))
    assert "weights [0. 0.]" in result.stdout, result.stderr[-4000:]
    assert "AutoGraph" not in result.stdout + result.stderr


def test_an_allreduce_takes_the_memory_of_an_input_that_nobody_needs(ddlrun: Run) -> None:
    """The peak is that of one such tensor, not of two."""
    code = (
        "import resource\n"
        "import ddl, tensorflow as tf\n"
        "def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024\n"
        "made = tf.function(lambda x: tf.reduce_sum(tf.fill([50_000_000], x)))\n"
        "summed = tf.function(lambda x: tf.reduce_sum(ddl.allreduce(tf.fill([50_000_000], x))))\n"
        "ddl.allreduce(tf.ones(3))\n"
        "begin = peak()\n"
        "made(tf.constant(1.0))\n"
        "one = peak()\n"
        "summed(tf.constant(1.0))\n"
        "print('MB', one - begin, peak() - one)\n"
    )
    result = ddlrun(1, code=code)
    assert result.returncode == 0, result.stderr[-4000:]
    one, more = result.stdout.split("MB ")[1].split()[:2]
    assert int(one) > 150
    assert int(more) < 100


def test_a_rank_that_is_killed_ends_the_job(ddlrun: Run) -> None:
    result = ddlrun(3, code=program("os.kill(os.getpid(), 9)"))
    assert result.returncode == 137
    assert "ddlrun: rank 1 on localhost was killed by SIGKILL" in result.stderr


# Runs a program as this rank, and hides its death from mpiexec until all ranks have ended.
SURVIVE = """
import os, pathlib, subprocess, sys, time
# The connection to mpiexec is an open file: the child takes it along.
code = subprocess.run([sys.executable, "-c", sys.argv[1]], close_fds=False).returncode
ended = pathlib.Path(os.environ["ENDED"])
(ended / os.environ["PMI_RANK"]).touch()
while len(list(ended.iterdir())) < int(os.environ["PMI_SIZE"]):
    time.sleep(0.05)
sys.exit(1 if code else 0)
"""


def test_a_rank_that_is_killed_ends_the_others_fit(tmp_path: Path) -> None:
    """The launcher would end the others at once: this is what they find where nobody does."""
    (tmp_path / "ended").mkdir()
    result = subprocess.run(
        [
            *(str(Path(sys.executable).with_name("mpiexec")), "-n", "2"),
            *(sys.executable, "-c", SURVIVE, program("os.kill(os.getpid(), 9)")),
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        # mpiexec drops what it has not read when a rank ends the job.
        env=os.environ
        | {"DDL_OPTIONS": "", "SAID": str(tmp_path / "said"), "ENDED": str(tmp_path / "ended")},
    )
    assert result.returncode != 0
    said = (tmp_path / "said").read_text()
    expected = "allreduce (average) 'adam-1/gradients': waiting for the other ranks: rank 1 (host"
    assert said.startswith("ended: AbortedError")
    assert expected in said
    assert "has died" in said


def test_an_uncaught_exception_ends_the_job(ddlrun: Run) -> None:
    code = program("raise KeyError('nothing')").replace("except Exception", "except ValueError")
    result = ddlrun(2, code=code)
    assert result.returncode != 0
    assert "KeyError: 'nothing'" in result.stderr


def test_a_rank_that_is_late(ddlrun: Run) -> None:
    """The others' fit ends with ddl's sentence, which names it."""
    code = program("time.sleep(8)", before="ddl.set_timeout(60 if ddl.rank() else 2)")
    result = ddlrun(2, code=code)
    assert result.returncode != 0
    ended = [line for line in result.stdout.splitlines() if line.startswith("[0@")]
    assert any("ended: AbortedError" in line for line in ended), result.stdout
    assert "adam-1/gradients" in result.stdout
    assert "rank 1" in result.stdout


def test_ranks_that_wait_for_different_operations(ddlrun: Run) -> None:
    """Both are told which, and can go on."""
    code = (
        "import ddl, tensorflow as tf\n"
        "from ddl_tensorflow.reducing import allreduce\n"
        "ddl.set_timeout(2)\n"
        "name = 'ab'[ddl.rank()]\n"
        "try: allreduce(tf.ones(2), name=name)\n"
        "except tf.errors.AbortedError as error: print('told:', error)\n"
        "print('then', allreduce(tf.ones(2)).numpy().sum())\n"
    )
    result = ddlrun(2, code=code)
    assert result.returncode == 0, result.stderr
    assert "allreduce (sum) 'a' was not called on rank 1 within the timeout" in result.stdout
    assert "allreduce (sum) 'b' was not called on rank 0 within the timeout" in result.stdout
    assert result.stdout.count("then 4.0") == 2
