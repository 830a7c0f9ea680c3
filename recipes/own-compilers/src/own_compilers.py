"""Lets programs that Python starts find this environment's compilers, activated or not.

torch.compile, Triton, setuptools, CMake and Cython ask CC and CXX, and PATH. `own_compilers.pth`
calls `use` when Python starts: in a shell that activated nothing, in jobs, clones and overlays.
What the user has set, or has first on PATH, stays.
"""

# Python starts with this file: nothing is imported here that Python has not loaded by then.
from __future__ import annotations

import os
import sys

__all__ = ["use"]

#: Names that no other compiler has, and that need no folder: a prefix may have blanks.
COMPILERS = {"CC": "x86_64-conda-linux-gnu-gcc", "CXX": "x86_64-conda-linux-gnu-g++"}


def use() -> None:
    """Set CC and CXX where they are not set; end PATH with the environment's programs."""
    programs = f"{sys.base_prefix}/bin"
    path = os.environ.get("PATH", os.defpath)
    if programs not in path.split(":"):
        os.environ["PATH"] = f"{path}:{programs}"
    for variable, name in COMPILERS.items():
        os.environ.setdefault(variable, name)
