"""Conda's order of versions."""

from __future__ import annotations

from rattler import Version


def version_key(version: str) -> Version:
    """A sort key: `1.9` before `1.10`, `2.0rc1` before `2.0`."""
    return Version(version)
