"""The C++ compiler of PyTorch's modules that compile."""

from __future__ import annotations

import functools
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from types import ModuleType

from own_compilers import TARGET, end_path_with

#: The oldest GCC that compiles PyTorch's headers, which are C++20.
OLDEST_GCC = 10


def inductor(module: ModuleType, run: Callable[[ModuleType], None]) -> None:
    """`torch.compile`, whose default is the `g++` on PATH."""
    run(module)
    end_path_with(f"{sys.base_prefix}/bin")  # it calls openssl, for sums of files
    module.__dict__["cpp"].cxx = (None, cxx())


def extensions(module: ModuleType, run: Callable[[ModuleType], None]) -> None:
    """`torch.utils.cpp_extension`, whose default is the `c++` on PATH."""
    run(module)
    end_path_with(f"{sys.base_prefix}/bin")  # it calls ninja
    module.__dict__["get_cxx_compiler"] = cxx


def cxx() -> str:
    """The user's own compiler, in CXX, unless it is too old; then this environment's.

    Clusters' modules set CXX, too, often to the GCC of the system. A compiler that cannot be asked
    is taken: PyTorch's error then names it. A name without a folder, as a prefix may have blanks.
    """
    chosen = os.environ.get("CXX", "")
    if chosen and not _too_old(chosen):
        return chosen
    return f"{TARGET}-g++"


@functools.cache
def _too_old(command: str) -> bool:
    """Whether the command is a GCC that is too old."""
    try:
        said = subprocess.run(
            [*shlex.split(command), "--version"], capture_output=True, text=True, check=False
        ).stdout
    except (OSError, ValueError):
        return False
    version = re.search(r"^\S*(?:g\+\+|c\+\+|gcc|cc)\S* \(.*?\) (\d+)\.", said)
    return version is not None and int(version[1]) < OLDEST_GCC
