"""Keras on Horovod.

    ddlrun -H localhost:4 python -m ddl_ce_examples.keras_horovod

Four steps make a program for one process one for many: they are numbered below.
"""

import horovod.keras as hvd
import keras
from keras import layers

from ddl_ce_examples import digits

BATCH = 16  # on each rank
EPOCHS = 15


def network() -> keras.Model:
    """Two convolutions and two dense layers."""
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Conv2D(16, 3, padding="same", activation="relu"),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(2),
            layers.Flatten(),
            layers.Dense(128, activation="relu"),
            layers.Dense(10),
        ]
    )


def main() -> keras.Model:
    """Trains on all ranks; rank 0 prints. Returns the model."""
    # 1. Start Horovod.
    hvd.init()
    keras.utils.set_random_seed(hvd.rank())  # each rank shuffles its data in its own way

    # 2. Split the data by rank. All ranks get as many samples, so all make as many steps.
    (x, y), (x_test, y_test) = digits.load()
    count = len(x) // hvd.size()
    x, y = x[hvd.rank() :: hvd.size()][:count], y[hvd.rank() :: hvd.size()][:count]

    # 3. Scale the learning rate, and wrap the optimizer, which averages the gradients then.
    model = network()
    model.compile(
        optimizer=hvd.DistributedOptimizer(keras.optimizers.Adam(1e-3 * hvd.size())),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        jit_compile=False,
    )

    # 4. Pass the callbacks: begin with the variables of rank 0; average the metrics.
    model.fit(
        x,
        y,
        batch_size=BATCH,
        epochs=EPOCHS,
        callbacks=[
            hvd.callbacks.BroadcastGlobalVariablesCallback(0),
            hvd.callbacks.MetricAverageCallback(),
        ],
        verbose=2 if hvd.rank() == 0 else 0,
    )

    if hvd.rank() == 0:
        _, accuracy = model.evaluate(x_test, y_test, verbose=0)
        print(f"test accuracy: {accuracy:.4f}", flush=True)
    return model


if __name__ == "__main__":
    main()
