"""Keras on PyTorch: nothing is compiled, and ddl takes the tensors where they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ddl

from ddl_tensorflow.backends._values import give_out

__all__ = [
    "average",
    "average_accumulated",
    "begins_alone",
    "give_out",
    "participants",
    "prepare",
    "trainer",
]


def participants() -> int:
    """Start ddl; the number of ranks."""
    ddl.init()
    return ddl.size()


def average(grads: Sequence[Any], _variables: Sequence[Any], _name: str) -> list[Any]:
    """Average the gradients: one message for each type."""
    results = list(grads)
    there = [i for i, grad in enumerate(grads) if grad is not None]
    averages = ddl.allreduce_n([grads[i].detach().contiguous() for i in there])
    for i, one in zip(there, averages, strict=True):
        results[i] = one
    return results


def average_accumulated(_optimizer: Any, grads: Sequence[Any], name: str) -> list[Any]:
    """Average the gradients; Keras asks for it in the step that updates."""
    return average(grads, (), name)


def begins_alone() -> bool:
    """A callback gives out the variables."""
    return False


def prepare() -> None:
    """Nothing: Keras's models run as they are."""


def trainer() -> Any:
    """The class of Keras's models."""
    from keras.src.backend.torch.trainer import TorchTrainer

    return TorchTrainer
