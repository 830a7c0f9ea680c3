"""Errors of HTTP clients, in words for people."""

from __future__ import annotations


def innermost(error: BaseException | str) -> str:
    """The innermost sentence: requests wraps its causes three deep."""
    return str(error).rsplit(": ", 1)[-1].strip("')> ") or type(error).__name__
