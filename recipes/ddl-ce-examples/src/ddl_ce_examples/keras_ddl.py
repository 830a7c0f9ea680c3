"""Keras on ddl.

    ddlrun -H localhost:4 python -m ddl_ce_examples.keras_ddl

Four steps make a program for one process one for many: they are numbered below.
"""

import ddl  # 1. Import ddl: under ddlrun, Keras's optimizers average their gradients from now on.
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
    keras.utils.set_random_seed(ddl.rank())  # each rank shuffles its data in its own way

    # 2. Split the data by rank. All ranks get as many samples, so all make as many steps.
    train, (x_test, y_test) = digits.load()
    x, y = ddl.shard(train)

    # 3. Scale the learning rate: a step is made with as many times more samples as there are ranks.
    model = network()
    model.compile(
        optimizer=keras.optimizers.Adam(1e-3 * ddl.size()),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )

    # 4. Pass the callbacks. The first averages the metrics over the ranks, so that yours see the
    #    same numbers everywhere; the last makes all ranks begin with the variables of rank 0.
    model.fit(
        x,
        y,
        batch_size=BATCH,
        epochs=EPOCHS,
        callbacks=[ddl.DDLCallback(), ddl.DDLGlobalVariablesCallback()],
        verbose=2 if ddl.rank() == 0 else 0,
    )

    if ddl.rank() == 0:
        _, accuracy = model.evaluate(x_test, y_test, verbose=0)
        print(f"test accuracy: {accuracy:.4f}", flush=True)
    return model


if __name__ == "__main__":
    main()
