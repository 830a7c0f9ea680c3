"""The optimizers that average their gradients over the ranks, and how, for every Keras.

Each Keras registers its kind of optimizers here as soon as it is loaded (optimizers.py for
Keras 3, keras2.py for tf-keras), and so does TensorFlow (tf1.py). This module loads none of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

_numbers = itertools.count(1)


def _tensorflow() -> Any:
    return import_module("ddl_tensorflow.backends.on_tensorflow")


@dataclass
class Kind:
    """The optimizers of one Keras.

    Attributes:
        types: their classes.
        check: raises an error where they cannot average.
        hook: changes that Keras so that they can, once.
        build: makes an optimizer's variables, unless there are some.
        state: an optimizer's variables.
        backend: the module of the backend (backends/) that they compute on.
        always: whether every one of them averages, not only those that were chosen.
    """

    types: tuple[type, ...]
    check: Callable[[], None]
    hook: Callable[[], None]
    build: Callable[[Any, Any], None]
    state: Callable[[Any], Sequence[Any]]
    backend: Callable[[], Any] = _tensorflow
    always: bool = False


#: Later ones first: the classes of tf-keras are no classes of Keras 3, nor the reverse.
KINDS: list[Kind] = []


def kind_of(optimizer: Any) -> Kind | None:
    """The kind of an optimizer; None for anything else."""
    return next((kind for kind in KINDS if isinstance(optimizer, kind.types)), None)


def inner(optimizer: Any) -> Any:
    """The optimizer that a LossScaleOptimizer or tf-keras wraps, or the optimizer itself."""
    return getattr(optimizer, "inner_optimizer", getattr(optimizer, "optimizer", optimizer))


def is_distributed(optimizer: Any) -> bool:
    """Whether this optimizer, or the one inside, averages over more than one rank."""
    kind = kind_of(optimizer)
    if kind is None or any(hasattr(one, "_hvd") for one in (optimizer, inner(optimizer))):
        return False  # Horovod's reduce by themselves, perhaps over some ranks
    marked = (getattr(one, "_ddl_averages", False) for one in (optimizer, inner(optimizer)))
    return (kind.always or any(marked)) and kind.backend().participants() > 1


def averaged(optimizer: Any, grads: Sequence[Any], variables: Sequence[Any] | None) -> list[Any]:
    """The averages of its gradients; messages call them by the variables."""
    known = variables if variables is not None else optimizer._trainable_variables
    kind = kind_of(optimizer)
    backend = kind.backend() if kind else _tensorflow()
    averages: list[Any] = backend.average(grads, known, f"{name_of(optimizer)}/gradients")
    return averages


def name_of(optimizer: Any) -> str:
    """The same on all ranks, by the order of first use.

    Keras's own names are numbered by what this process has made, perhaps for rank 0 alone.
    """
    if not hasattr(optimizer, "_ddl_number"):
        optimizer._ddl_number = next(_numbers)
    return f"{type(optimizer).__name__.lower()}-{optimizer._ddl_number}"
