"""horovod.keras where scripts use it in other ways than the usual ones."""

from __future__ import annotations

import tempfile
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from horovod import keras as hvd
from horovod import tensorflow as hvd_tensorflow
from horovod.tensorflow import keras as hvd_tf
from hvd_frames import Frame
from hvd_harness import RANK, SIZE, case, close, everyone, given, same
from hvd_models import alike, fit, model, weights


@case
def operations_on_arrays(f: Frame) -> None:
    for module in (hvd, hvd_tf):
        name = f.name(module.__name__)
        mine = given(RANK, 3, 2).astype("float32")
        close(np.asarray(module.allreduce(mine, name=f"{name}.a")), everyone(3, 2).mean(0))
        same(np.asarray(module.allgather(mine, name=f"{name}.g")), everyone(3, 2).reshape(-1, 2))
        same(np.asarray(module.broadcast(mine, SIZE - 1, name=f"{name}.b")), everyone(3, 2)[-1])


@case
def the_best_model_is_kept(f: Frame) -> None:
    for module in (hvd, hvd_tf):
        net = model()
        best = module.callbacks.BestModelCheckpoint(monitor="loss")
        with tempfile.TemporaryDirectory() as folder:
            best.filepath = str(Path(folder) / "best.keras")
            average = module.callbacks.MetricAverageCallback()
            optimizer = module.DistributedOptimizer(keras.optimizers.SGD(0.1))
            fit(net, optimizer, callbacks=[average, best])
            loaded = keras.saving.load_model(best.filepath, compile=False)
        assert len(weights(loaded)) == len(weights(net))
        alike(f, weights(loaded), module.__name__)


@case
def a_wrapped_optimizer_s_configuration(f: Frame) -> None:
    for module in (hvd, hvd_tf):
        optimizer = module.DistributedOptimizer(keras.optimizers.Adam(0.02, beta_1=0.7))
        again = type(optimizer).from_config(optimizer.get_config())
        assert abs(float(again.learning_rate) - 0.02) < 1e-8
        assert again.beta_1 == 0.7


@case
def a_loop_of_one_s_own(f: Frame) -> None:
    """The tutorial's: variables are given out after the first step, rank 0 alone saves."""
    net = model(seed=RANK)
    optimizer = keras.optimizers.Adam(0.001 * SIZE)
    checkpoint = tf.train.Checkpoint(model=net)

    @tf.function
    def step(x: tf.Tensor, is_first: bool) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(net(x, training=True)))
        tape = hvd_tensorflow.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, net.trainable_variables)
        optimizer.apply_gradients(zip(gradients, net.trainable_variables, strict=True))
        if is_first:
            hvd_tensorflow.broadcast_variables(net.variables, root_rank=0)
            hvd_tensorflow.broadcast_variables(optimizer.variables, root_rank=0)
        return loss

    width = net.input_shape[-1]
    for turn in range(4):
        step(tf.constant(given(RANK, 5, width, salt=turn), tf.float32), turn == 0)
    alike(f, weights(net), "weights")
    if RANK == 0:
        with tempfile.TemporaryDirectory() as folder:
            assert Path(checkpoint.save(str(Path(folder, "step"))) + ".index").exists()
