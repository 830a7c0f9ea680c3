"""The names of IBM's LMS in `torch.cuda`, there as soon as a program has imported torch.

torch calls `register` at its import (`torch.backends`). `lms` itself is loaded at the first call of
one of them, so that it costs other programs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

NAMES = (
    "set_enabled_lms",
    "get_enabled_lms",
    "set_limit_lms",
    "get_limit_lms",
    "set_size_lms",
    "get_size_lms",
    "reclaim_inactive",
)


def register() -> None:
    """Put the calls into `torch.cuda`."""
    import torch

    for name in NAMES:
        if not hasattr(torch.cuda, name):  # or `lms` was imported first, which imports torch
            setattr(torch.cuda, name, _first_call(name))


def _first_call(name: str) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        from lms import ibm

        return getattr(ibm, name)(*args, **kwargs)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"See `lms.ibm.{name}`."
    return call
