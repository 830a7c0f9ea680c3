"""TensorFlow programs in the forms of Horovod's own examples: TensorFlow 1's sessions, tf-keras."""

from __future__ import annotations

import pytest

from conftest import Run

SESSION = """
import tensorflow.compat.v1 as tf
import horovod.tensorflow as hvd
tf.disable_eager_execution()
hvd.init()
w = tf.get_variable("w", initializer=float(hvd.rank()))
loss = tf.square(w - (1.0 + 2.0 * hvd.rank()))
optimizer = hvd.DistributedOptimizer(tf.train.MomentumOptimizer(0.05, 0.5))
step = optimizer.minimize(loss, global_step=tf.train.get_or_create_global_step())
hooks = [hvd.BroadcastGlobalVariablesHook(0), tf.train.StopAtStepHook(last_step=80)]
with tf.train.MonitoredTrainingSession(hooks=hooks) as session:
    while not session.should_stop():
        weights, _ = session.run([w, step])
assert abs(weights - 2.0) < 0.01, weights
print("weights", weights)
"""
DATA = """
import numpy as np
import tensorflow as tf
import {module} as hvd
hvd.init()
tf.random.set_seed(hvd.rank())
x = np.random.default_rng(hvd.rank()).random((96, 8, 8, 1)).astype("float32")
y = (x.mean((1, 2, 3)) > 0.5).astype("int64")
dataset = tf.data.Dataset.from_tensor_slices((x, y)).repeat().shuffle(96).batch(16)
model = tf.keras.Sequential([
    tf.keras.layers.Conv2D(4, [3, 3], activation="relu"),
    tf.keras.layers.Flatten(),
    tf.keras.layers.Dropout(0.25),
    tf.keras.layers.Dense(2, activation="softmax"),
])
"""
LOOP = """
losses = tf.losses.SparseCategoricalCrossentropy()
optimizer = tf.optimizers.Adam(0.001 * hvd.size())
checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer)

@tf.function
def step(images, labels, is_first):
    with tf.GradientTape() as tape:
        loss = losses(labels, model(images, training=True))
    tape = hvd.DistributedGradientTape(tape)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    if is_first:
        hvd.broadcast_variables(model.variables, root_rank=0)
        hvd.broadcast_variables(optimizer.variables(), root_rank=0)
    return loss

for batch, (images, labels) in enumerate(dataset.take(8 // hvd.size())):
    step(images, labels, batch == 0)
"""
FIT = """
optimizer = hvd.DistributedOptimizer(
    tf.optimizers.Adam(0.001 * hvd.size()),
    backward_passes_per_step=1,
    average_aggregated_gradients=True,
)
model.compile(
    loss=tf.losses.SparseCategoricalCrossentropy(),
    optimizer=optimizer,
    metrics=["accuracy"],
    experimental_run_tf_function=False,
)
callbacks = [
    hvd.callbacks.BroadcastGlobalVariablesCallback(0),
    hvd.callbacks.MetricAverageCallback(),
    hvd.callbacks.LearningRateWarmupCallback(0.001 * hvd.size(), warmup_epochs=2, verbose=1),
]
history = model.fit(dataset, steps_per_epoch=4, callbacks=callbacks, epochs=3, verbose=0)
print("weights", history.history["loss"])
"""
MOMENTUM = """
class Fault(tf.keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if self.params["epochs"] == 1:
            raise KeyError("the fault of this test")

for sgd in (tf.optimizers.SGD, tf.keras.optimizers.legacy.SGD):
    optimizer = hvd.DistributedOptimizer(sgd(0.1, momentum=0.9))
    model.compile(optimizer, "sparse_categorical_crossentropy")
    rate = hvd.callbacks.LearningRateScheduleCallback(
        initial_lr=0.2, multiplier=lambda epoch: 1 / (1 + epoch), staircase=False,
        steps_per_epoch=2,
    )
    for epochs in (1, 2):
        try:
            model.fit(dataset, steps_per_epoch=2, epochs=epochs, callbacks=[Fault(), rate])
        except KeyError:
            assert epochs == 1
    assert abs(float(model.optimizer.momentum) - 0.9) < 1e-6, model.optimizer.momentum
print("weights are there")
"""
SHOW = """
print("weights", [float(tf.reduce_sum(one)) for one in model.trainable_variables])
"""
PROGRAMS = {
    "session": (SESSION, {}),
    "loop": (DATA.format(module="horovod.tensorflow") + LOOP + SHOW, {"TF_USE_LEGACY_KERAS": "1"}),
    "fit": (
        DATA.format(module="horovod.tensorflow.keras") + FIT + SHOW,
        {"TF_USE_LEGACY_KERAS": "1"},
    ),
    "momentum": (
        DATA.format(module="horovod.tensorflow.keras") + MOMENTUM,
        {"TF_USE_LEGACY_KERAS": "1"},
    ),
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_trains_alike_on_all_ranks(ddlrun: Run, program: str) -> None:
    code, env = PROGRAMS[program]
    if env:
        pytest.importorskip("tf_keras")
    result = ddlrun(2, code=code, env=env)
    assert result.returncode == 0, result.stderr[-4000:]
    said = [line.split("weights ")[1] for line in result.stdout.splitlines() if "weights" in line]
    assert len(said) == 2 * len(set(said)) > 0, result.stdout


def test_an_optimizer_of_the_other_keras_is_refused(ddlrun: Run) -> None:
    """Wrapped by tf-keras' rules, Keras 3's would go on and reduce nothing."""
    pytest.importorskip("tf_keras")
    code = """
import horovod.tensorflow.keras as hvd
import keras
hvd.init()
hvd.DistributedOptimizer(keras.optimizers.Adam())
"""
    result = ddlrun(1, code=code, env={"TF_USE_LEGACY_KERAS": "1"})
    assert result.returncode != 0
    assert "works with tf-keras, as TF_USE_LEGACY_KERAS=1 says" in result.stderr, result.stderr
