"""The exception of this package, and its words on standard error."""

from __future__ import annotations

import sys


class CheckpointError(RuntimeError):
    """A checkpoint cannot be written or read, or the call was wrong; the message says all."""


def say(text: str) -> None:
    """Print a line of ours on standard error."""
    print(f"ddl.checkpoint: {text}", file=sys.stderr, flush=True)
