"""Keras on JAX: gradients are averaged inside the compiled step, by `ddl.jax`.

Each rank is a JAX of its own. Where `keras.distribution` spreads a model over the processes, or
`jax.distributed` has made one JAX of them, XLA makes one gradient of all: nothing is left to do.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import cache
from typing import Any

import ddl
import jax
import keras

from ddl_tensorflow.backends._values import give_out

__all__ = [
    "average",
    "average_accumulated",
    "begins_alone",
    "complete",
    "give_out",
    "participants",
    "prepare",
    "trainer",
]


def participants() -> int:
    """Start ddl; the number of ranks, or 1 where they are one JAX.

    Raises:
        RuntimeError: a distribution spreads the model over this process's devices alone.
    """
    is_spread = keras.distribution.distribution() is not None
    is_joined = jax.distributed.is_initialized()
    if is_joined and not is_spread:
        _warn_once()
    if is_joined:
        return 1
    ddl.init()
    if is_spread and ddl.size() > 1:
        raise RuntimeError(
            "ddl: keras.distribution spreads the model over the devices of this process alone, so "
            "each rank would train for itself; call jax.distributed.initialize() before, or set no "
            "distribution"
        )
    return ddl.size()


@cache
def _warn_once() -> None:
    warnings.warn(
        "ddl: jax.distributed.initialize() has made one JAX of all ranks, and no distribution "
        "spreads the model: its gradients are not averaged. Set a distribution, or leave "
        "initialize() out.",
        stacklevel=2,
    )


def average(grads: Sequence[Any], _variables: Sequence[Any], _name: str) -> list[Any]:
    """Average the gradients; small ones travel together."""
    try:
        from ddl_jax.functions import allreduce
    except ModuleNotFoundError:
        raise RuntimeError(
            "ddl: Keras runs on jax, which needs the package ddl-jax, and that is not installed; "
            "install it: conda install ddl-jax"
        ) from None
    averages: list[Any] = allreduce(list(grads), "mean")  # None is an empty tree
    return averages


def complete(_optimizer: Any, grads: Sequence[Any], _variables: Sequence[Any]) -> list[Any]:
    """The gradients: JAX's are never missing."""
    return list(grads)


def average_accumulated(
    optimizer: Any, grads: Sequence[Any], _variables: Sequence[Any], name: str
) -> list[Any]:
    """Average the gradients in the step that updates: Keras's are no branch, but choose values."""
    # Its `iterations` count updates, not steps.
    is_update = (optimizer._iterations + 1) % optimizer.gradient_accumulation_steps == 0
    averages: list[Any] = jax.lax.cond(is_update, lambda: average(grads, (), name), lambda: grads)
    return averages


def begins_alone() -> bool:
    """A callback gives out the variables."""
    return False


def prepare() -> None:
    """Nothing: Keras's models run as they are."""


def trainer() -> Any:
    """The class of Keras's models."""
    from keras.src.backend.jax.trainer import JAXTrainer

    return JAXTrainer
