"""The differences between Keras's backends: a module for each, with the same functions.

- `participants` starts ddl unless it runs, and gives the number of ranks that average gradients.
- `average` averages gradients; those that are None on all ranks stay None.
- `complete` does what an accumulating optimizer needs before: Keras forgets who has no gradient.
- `average_accumulated` does so once for each update, where an optimizer accumulates.
- `give_out` gives rank 0's values of a model's variables to all ranks.
- `begins_alone` says whether something else than a callback gives out the variables.
- `prepare` makes the changes in Keras that this backend needs, once.
- `trainer` is the class of Keras's models here.
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
