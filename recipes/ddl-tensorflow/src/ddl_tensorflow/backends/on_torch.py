"""Keras on PyTorch: nothing is compiled, and ddl takes the tensors where they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ddl
import torch

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
    """Start ddl; the number of ranks."""
    ddl.init()
    return ddl.size()


def average(grads: Sequence[Any], variables: Sequence[Any], _name: str) -> list[Any]:
    """Average the gradients: one message for each type.

    Where other ranks have a gradient and this one has not, its share is zero, as in PyTorch's DDP
    with `find_unused_parameters`. Those that no rank has stay None.
    """
    there = torch.tensor([float(grad is not None) for grad in grads])
    filled = [_given(grad, variable) for grad, variable in zip(grads, variables, strict=True)]
    *averages, anywhere = ddl.allreduce_n([*filled, there.to(filled[0].device)])
    return [
        one if any_rank else None for one, any_rank in zip(averages, anywhere.tolist(), strict=True)
    ]


def complete(optimizer: Any, grads: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
    """Zeros for the gradients that other ranks alone have, in the step that updates."""
    if (int(optimizer._iterations) + 1) % optimizer.gradient_accumulation_steps:
        return list(grads)
    there = torch.tensor([float(grad is not None) for grad in grads])
    anywhere = ddl.allreduce(there, "max")
    return [
        _given(grad, variable) if any_rank else None
        for grad, variable, any_rank in zip(grads, variables, anywhere.tolist(), strict=True)
    ]


def _given(grad: Any, variable: Any) -> Any:
    return torch.zeros_like(variable.value) if grad is None else grad.detach().contiguous()


def average_accumulated(
    _optimizer: Any, grads: Sequence[Any], variables: Sequence[Any], name: str
) -> list[Any]:
    """Average the gradients; Keras asks for it in the step that updates."""
    return average(grads, variables, name)


def begins_alone() -> bool:
    """A callback gives out the variables."""
    return False


def prepare() -> None:
    """Nothing: Keras's models run as they are."""


def trainer() -> Any:
    """The class of Keras's models."""
    from keras.src.backend.torch.trainer import TorchTrainer

    return TorchTrainer
