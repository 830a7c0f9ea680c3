"""TensorFlow programs as the public ones for DDL are written: `import ddl` is all that they add."""

import pytest
from rank_cases import Result, Run

SESSION = """
tf.disable_v2_behavior()
w = tf.Variable(float(ddl.rank()))
loss = tf.square(w - (1.0 if ddl.rank() == 0 else 3.0))
step = {optimizer}.minimize(loss)
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    for _ in range(50):
        session.run(step)
    print("weights", session.run(w))
"""
KERAS = """
import numpy as np
{mode}
x = np.full((8, 4), 1.0 + ddl.rank(), "float32")
for callbacks in ([], [ddl.DDLCallback(), ddl.DDLGlobalVariablesCallback()]):
    layers = [tf.keras.layers.Dense(3, "tanh", input_shape=(4,)), tf.keras.layers.Dense(1)]
    model = tf.keras.Sequential(layers)
    model.compile(loss="mse", metrics=["mae"], optimizer={optimizer})
    history = model.fit(x, x[:, :1], epochs=3, batch_size=4, verbose=0, callbacks=callbacks)
    result = model.evaluate(x, x[:, :1], verbose=0, callbacks=callbacks)
    weights = np.concatenate([one.ravel() for one in model.get_weights()]).tolist()
    print(len(callbacks), "weights", weights)
print("metrics", history.history, result)
"""
EAGER = """
tf.enable_eager_execution()
import numpy as np
layers = [tf.keras.layers.Dense(3, "tanh", input_shape=(4,)), tf.keras.layers.Dense(1)]
model = tf.keras.Sequential(layers)
optimizer = tf.train.MomentumOptimizer(0.01, 0.5)
steps = tf.train.get_or_create_global_step()
x = tf.fill((8, 4), 1.0 + ddl.rank())
def step():
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(x, training=True) - x[:, :1]))
    pairs = zip(tape.gradient(loss, model.variables), model.variables)
    optimizer.apply_gradients(pairs, global_step=steps)
step = {wrap}(step)
for _ in range(5):
    step()
print("weights", np.concatenate([one.numpy().ravel() for one in model.variables]).tolist())
"""
IMPORTS = {
    "ddl first": "import ddl\nimport tensorflow.compat.v1 as tf\n",
    "TensorFlow first": "import tensorflow.compat.v1 as tf\nimport ddl\n",
}


def said(result: Result, what: str) -> set[str]:
    assert result.returncode == 0, result.stderr[-4000:]
    lines = [line.split(f"{what} ")[1] for line in result.stdout.splitlines() if what in line]
    assert len(lines) == 2, result.stdout
    return set(lines)


@pytest.mark.parametrize("imports", IMPORTS)
def test_a_session_averages_and_begins_with_rank_0s_variables(ddlrun: Run, imports: str) -> None:
    code = SESSION.format(optimizer="tf.train.GradientDescentOptimizer(0.1)")
    (w,) = said(ddlrun(2, code=IMPORTS[imports] + code), "weights")
    assert float(w) == pytest.approx(2.0, abs=1e-3)


@pytest.mark.parametrize("mode", ["", "tf.compat.v1.disable_v2_behavior()"])
@pytest.mark.parametrize(
    "optimizer", ["tf.compat.v1.train.AdadeltaOptimizer(1.0)", "tf.keras.optimizers.legacy.Adam()"]
)
def test_tf_keras(ddlrun: Run, optimizer: str, mode: str) -> None:
    code = KERAS.format(optimizer=optimizer, mode=mode)
    env = {"TF_USE_LEGACY_KERAS": "1"}
    result = ddlrun(2, code="import ddl\nimport tensorflow as tf\n" + code, env=env)
    for what in ("0 weights", "2 weights", "metrics"):
        assert len(said(result, what)) == 1


def test_a_program_that_calls_ddl_itself(ddlrun: Run) -> None:
    code = SESSION.format(optimizer="tf.train.AdamOptimizer(0.5)")
    code = code.replace("float(ddl.rank())", "ddl.bcast(tf.constant(float(ddl.rank())))")
    code = code.replace(
        ".minimize(loss)",
        "\npairs = ddl.grads_reduce(step.compute_gradients(loss), average=True)\n"
        "step = step.apply_gradients(pairs)",
    )
    begin = "import os; os.environ.pop('DDL_OPTIONS')\nimport ddl\n"
    init = "ddl.init('-mode b:2x1 -dump_iter 100')\n"
    (w,) = said(ddlrun(2, code=begin + IMPORTS["ddl first"] + init + code), "weights")
    assert 1.5 < float(w) < 2.5


@pytest.mark.parametrize("wrap", ["", "tf.function"])
def test_an_eager_loop_begins_with_rank_0s_variables(ddlrun: Run, wrap: str) -> None:
    env = {"TF_USE_LEGACY_KERAS": "1"}
    result = ddlrun(2, code=IMPORTS["TensorFlow first"] + EAGER.format(wrap=wrap), env=env)
    assert len(said(result, "weights")) == 1


def test_an_optimizer_of_a_program_without_ddl_options_is_wrapped(ddlrun: Run) -> None:
    code = SESSION.format(optimizer="ddl.DistributedOptimizer(tf.train.AdamOptimizer(0.5))")
    begin = "import os; os.environ.pop('DDL_OPTIONS')\nimport ddl; ddl.init()\n"
    (w,) = said(ddlrun(2, code=begin + IMPORTS["ddl first"] + code), "weights")
    assert 1.5 < float(w) < 2.5
