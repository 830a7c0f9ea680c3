"""The environment whose libraries are measured."""

from __future__ import annotations

from pathlib import Path

from ddlce.env.layout import Layout
from ddlce.settings import load_settings


def built() -> Path:
    """The built environment, or where it would be."""
    root = load_settings().root
    return Layout(root).current("ddl-ce") or root / "envs" / "ddl-ce" / "current"


def research() -> Path:
    """The built environment with the packages of research, or where it would be."""
    root = load_settings().root
    return Layout(root).current("ddl-ce-full") or root / "envs" / "ddl-ce-full" / "current"


def environment_with(program: str, asked: Path | None) -> Path:
    """`asked`, or else the built environment; absolute.

    Raises:
        ValueError: it has no such program.
    """
    prefix = (asked or built()).absolute()
    if not (prefix / "bin" / program).exists():
        raise ValueError(f"there is no bin/{program} in {prefix}; run make, or give --prefix")
    return prefix
