"""Texts for people."""

from __future__ import annotations

from collections.abc import Iterable

#: Names that a line has room for.
SHOWN = 5


def some(names: Iterable[str]) -> str:
    """A few of the names, and how many more there are."""
    ordered = sorted(set(names))
    rest = len(ordered) - SHOWN
    return ", ".join(ordered[:SHOWN]) + (f" and {rest} more" if rest > 0 else "")
