"""Checkpoints for jobs that a batch system may end at any time, and start again.

    with ddl.checkpoint.Checkpointer("saved", model=model, optimizer=optimizer) as saver:
        for step in saver.steps(10_000):
            ...  # one step of training
            saver.step()

A signal to any rank makes all ranks save after the same step and end with `EXIT_PREEMPTED`. Started
again, the same program goes on at that step. Nothing of torch, Keras or Horovod is imported here.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ddl.checkpoint.errors import CheckpointError
from ddl.checkpoint.saver import EXIT_PREEMPTED, Checkpointer

if TYPE_CHECKING:
    from ddl.checkpoint.keras_callback import KerasCheckpoint

__all__ = ["EXIT_PREEMPTED", "CheckpointError", "Checkpointer", "KerasCheckpoint"]


def __getattr__(name: str) -> Any:
    """Import Keras at the first use of its callback."""
    if name == "KerasCheckpoint":
        return import_module("ddl.checkpoint.keras_callback").KerasCheckpoint
    raise AttributeError(f"module 'ddl.checkpoint' has no attribute '{name}'")
