"""Lets programs that Python starts find this environment's compilers, activated or not.

`own_compilers.pth` calls `use` when Python starts: in a shell that activated nothing, in jobs,
clones and overlays. Programs that ask PATH get the machine's compilers where it has any. PyTorch
needs a compiler of C++20, which many machines have not, so it gets this environment's. What the
user has chosen by CC and CXX stays.
"""

# Python starts with this file: nothing is imported here that Python has not loaded by then.
from __future__ import annotations

import os
import sys

import private_caches

__all__ = ["TARGET", "end_path_with", "use"]

#: What stands before the names of the programs.
TARGET = "x86_64-conda-linux-gnu"


def use() -> None:
    """End PATH with the compilers' folder, and let PyTorch take them when it is imported."""
    end_path_with(f"{sys.base_prefix}/{TARGET}/gcc/bin")
    private_caches.MENDED |= {
        "torch._inductor.config": "own_compilers.torch_compilers:inductor",
        "torch.utils.cpp_extension": "own_compilers.torch_compilers:extensions",
    }
    private_caches.install()


def end_path_with(folder: str) -> None:
    """Add a folder to PATH, unless it is there."""
    path = os.environ.get("PATH", os.defpath)
    if folder not in path.split(":"):
        # An empty PATH gets no empty part: it would name the current folder.
        os.environ["PATH"] = f"{path}:{folder}" if path else folder
