"""What differs between Keras's backends: a module for each, with the same functions.

participants()  starts ddl unless it runs; the number of ranks whose gradients are averaged
average()       the averages of gradients, None where a gradient is None
average_accumulated()  the same, where an optimizer accumulates; for each update, once
give_out()      rank 0's values for a model's variables, on all ranks
begins_alone()  whether something else than a callback gives out the variables
prepare()       changes in Keras that this backend needs, once
trainer()       the class of Keras's models here
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

NAMES = ("tensorflow", "torch", "jax")


def name() -> str:
    """The backend that Keras runs on; "tensorflow" for a program without Keras."""
    keras = sys.modules.get("keras")
    return "tensorflow" if keras is None else str(keras.config.backend())


def current() -> Any:
    """The module of the backend that Keras runs on.

    Raises:
        RuntimeError: there is none.
    """
    if name() not in NAMES:
        raise RuntimeError(
            f"ddl: Keras runs on {name()}; set KERAS_BACKEND to one of {', '.join(NAMES)}"
        )
    return import_module(f"ddl_tensorflow.backends.on_{name()}")
