"""The training of `train_lms`, by Keras: on handwritten digits, with less memory than it asks for.

    ddlrun -H localhost:1 python -m ddl_ce_smoke.train_lms_keras

On a GPU if there is one, and from one logical CPU device to another otherwise. The weights must be
those of training without LMS, to the bit.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from ddl_ce_smoke import digits
from ddl_ce_smoke.findings import Finding, report_findings

BATCHES, ROWS, WIDTH, LAYERS = 2, 512, 256, 8
SHARE = 0.85


def network(keras: Any) -> Any:
    """A model so deep that the tensors kept for the way back are most of its memory."""
    keras.utils.set_random_seed(digits.SEED)
    hidden = [keras.layers.Dense(WIDTH, activation="tanh") for _ in range(LAYERS)]
    head = [keras.Input((8, 8, 1)), keras.layers.Flatten()]
    model = keras.Sequential([*head, *hidden, keras.layers.Dense(10)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss, jit_compile=False)
    return model


def train(keras: Any, callback: Any) -> list[bytes]:
    """The weights after some batches."""
    data, _ = digits.load()
    rows = BATCHES * ROWS
    images = data.images[:rows].numpy().transpose(0, 2, 3, 1)
    model = network(keras)
    options = {"batch_size": ROWS, "shuffle": False, "verbose": 0}
    model.fit(images, data.labels[:rows].numpy(), callbacks=callback, **options)
    return [weight.tobytes() for weight in model.get_weights()]


def devices(tf: Any) -> dict[str, str]:
    """The devices that LMS is told; none where there is a GPU."""
    if tf.config.list_physical_devices("GPU"):
        tf.config.experimental.enable_op_determinism()
        return {}
    (cpu,) = tf.config.list_physical_devices("CPU")
    two = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(cpu, two)
    return {"device": "CPU:0", "host": "CPU:1"}


def check() -> list[Finding]:
    """Training without LMS and with it, compared."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")  # it may round otherwise where LMS waits
    import keras
    import lms_tensorflow
    import tensorflow as tf

    where = devices(tf)
    plain = train(keras, [])
    # in LMS's order and with nothing swapped: less can only be had by swaps
    probe = lms_tensorflow.LMS(
        swapout_threshold=1 << 30, serialization_by_size=1, batch_size=ROWS, **where
    )
    train(keras, [probe])
    demand = max(plan.peak_after for plan in probe.plans)
    limit = int(SHARE * demand)
    callback = lms_tensorflow.LMS(limit=limit, batch_size=ROWS, **where)
    under = train(keras, [callback])
    plan = max(callback.plans, key=lambda one: one.peak_before)
    return [
        Finding(
            "weights as without",
            "" if under == plain else "the weights differ from those without LMS",
            "identical",
        ),
        Finding(
            "below the limit",
            "" if plan.peak_after <= limit else f"{plan.peak_after} bytes for {limit}",
            f"a plan for {plan.peak_after / 2**20:.1f} MiB at the highest, where "
            f"{demand / 2**20:.1f} MiB is without swaps",
        ),
        Finding(
            "held to the plan",
            "" if plan.order and plan.swaps else f"nothing is:\n{callback.report()}",
            f"{len(plan.swaps)} tensors swapped, {plan.bytes_out / 2**20:.1f} MiB",
        ),
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs on one rank. Exit status 1 if it did not come out right."""
    return report_findings(check, "train_lms_keras", __doc__, argv)


if __name__ == "__main__":
    sys.exit(main())
