"""Putting a function around a method of a class that is not ours."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


def around(owner: type, name: str, replacement: Callable[..., Any]) -> None:
    """Let `replacement` be called in a method's place, with the method as its first argument."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return replacement(original, self, *args, **kwargs)

    setattr(owner, name, call)
