"""What packages are made for: a platform, with its Python and the oldest glibc."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """What decides which wheels fit, and what packages made of them require.

    Attributes:
        subdir: conda's name of the platform, "linux-64".
        python: the minor version of its Python, "3.11"; "" for any.
        glibc: the oldest glibc that its packages run on, "2.28"; "" for any.
    """

    subdir: str
    python: str = ""
    glibc: str = ""
