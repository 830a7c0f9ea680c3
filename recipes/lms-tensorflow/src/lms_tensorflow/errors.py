"""The errors of LMS."""

from __future__ import annotations


class LmsError(RuntimeError):
    """LMS cannot do what was asked; the message says why, and what to do."""


class OptionError(LmsError, ValueError):
    """An option has a value that it cannot have."""


class LimitError(LmsError, MemoryError):
    """No plan keeps the limit; the message names the shortfall."""
