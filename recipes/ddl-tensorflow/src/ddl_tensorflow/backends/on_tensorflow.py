"""Keras on TensorFlow: ddl's operations are part of its graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from ddl_tensorflow.averaging import is_distributed
from ddl_tensorflow.library import label_of
from ddl_tensorflow.library import ready as participants
from ddl_tensorflow.moving import broadcast_n
from ddl_tensorflow.reducing import reduce_labelled

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


def average(grads: Sequence[Any], variables: Sequence[Any], name: str) -> list[Any]:
    """Average the gradients; messages call them by the variables, ranks match them by the name."""
    labels = [f"gradient of {label_of(variable, i)}" for i, variable in enumerate(variables)]
    return reduce_labelled(grads, labels, name=name)


def complete(_optimizer: Any, grads: Sequence[Any], _variables: Sequence[Any]) -> list[Any]:
    """The gradients: which ones there are is part of the graph."""
    return list(grads)


def average_accumulated(
    optimizer: Any, grads: Sequence[Any], variables: Sequence[Any], name: str
) -> list[Any]:
    """Average the gradients; Keras asks for it inside its condition, and has left out the None."""
    places = [optimizer._get_variable_index(variable) for variable in variables]
    every: list[Any] = [None] * len(optimizer._trainable_variables)
    for i, grad in zip(places, grads, strict=True):
        every[i] = grad
    averages = average(every, optimizer._trainable_variables, name)
    return [averages[i] for i in places]


def give_out(variables: Sequence[Any]) -> None:
    """Assign rank 0's values."""
    for variable, value in zip(variables, broadcast_n(variables, name="variables"), strict=True):
        variable.assign(value)


def begins_alone() -> bool:
    """Sessions begin with rank 0's variables by themselves (sessions.py)."""
    return not tf.executing_eagerly()


def prepare() -> None:
    """Compile without XLA, which knows nothing of our operations, where an optimizer averages."""
    from keras.src.trainers.trainer import Trainer

    before = Trainer.jit_compile

    def jit_compile(model: Any) -> bool:
        return bool(before.fget(model)) and not is_distributed(getattr(model, "optimizer", None))

    Trainer.jit_compile = property(jit_compile, before.fset)


def trainer() -> Any:
    """The class of Keras's models."""
    from keras.src.backend.tensorflow.trainer import TensorFlowTrainer

    return TensorFlowTrainer
