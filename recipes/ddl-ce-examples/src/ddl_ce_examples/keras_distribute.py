"""Keras on tf.distribute's MultiWorkerMirroredStrategy.

    ddlrun -tf_config -H localhost:4 python -m ddl_ce_examples.keras_distribute

Keras 3 cannot `fit` on several workers of this strategy: this is tf-keras, its predecessor. Four
steps make a program for one process one for many: they are numbered below.
"""

import os
import sys

import tensorflow as tf
import tf_keras as keras
from tf_keras import layers

from ddl_ce_examples import digits

START = "-H localhost:2 python -m ddl_ce_examples.keras_distribute"
BATCH = 16  # on each worker
EPOCHS = 15


def network() -> keras.Model:
    """Two convolutions and two dense layers."""
    return keras.Sequential(
        [
            layers.InputLayer((8, 8, 1)),
            layers.Conv2D(16, 3, padding="same", activation="relu"),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(2),
            layers.Flatten(),
            layers.Dense(128, activation="relu"),
            layers.Dense(10),
        ]
    )


def main() -> keras.Model:
    """Trains on all workers; the first prints. Returns the model."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and "TF_CONFIG" not in os.environ:
        print(f"error: start me with ddlrun -tf_config {START}", file=sys.stderr)
        sys.exit(2)
    keras.utils.set_random_seed(0)

    # 1. Start the strategy: TF_CONFIG, which `ddlrun -tf_config` sets, names it the workers.
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    size, rank = strategy.num_replicas_in_sync, strategy.cluster_resolver.task_id or 0

    # 2. Split the data by worker. The strategy asks for each worker's own batches; it is told how
    #    many make an epoch, the same number on all.
    (x, y), (x_test, y_test) = digits.load()
    count = len(x) // size
    x, y = x[rank::size][:count], y[rank::size][:count]

    def batches(_: tf.distribute.InputContext) -> tf.data.Dataset:
        data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(count, seed=rank)
        return data.batch(BATCH, drop_remainder=True).repeat()

    # 3. Scale the learning rate; make the variables inside the strategy, which keeps them alike.
    with strategy.scope():
        model = network()
        model.compile(
            optimizer=keras.optimizers.Adam(1e-3 * size),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )

    # 4. There are no callbacks to pass: the strategy averages gradients and metrics.
    model.fit(
        strategy.distribute_datasets_from_function(batches),
        epochs=EPOCHS,
        steps_per_epoch=count // BATCH,
        verbose=2 if rank == 0 else 0,
    )

    if rank == 0:
        correct = model(x_test, training=False).numpy().argmax(1) == y_test
        print(f"test accuracy: {correct.mean():.4f}", flush=True)
    return model


if __name__ == "__main__":
    main()
