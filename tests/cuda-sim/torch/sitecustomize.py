"""Gives PyTorch's operations to the simulated CUDA, as soon as a program imports PyTorch."""

from __future__ import annotations

import ctypes
import importlib.abc
import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType


class AfterTorch(importlib.abc.MetaPathFinder):
    """Finds `torch` as others do, and goes on when it has been run."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The usual spec, whose loader does more; None for other modules."""
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return None
        run = spec.loader.exec_module

        def run_and_take(module: ModuleType) -> None:
            run(module)
            ctypes.CDLL(os.environ["CUDASIM_TORCH"]).cudasim_take_operations()

        spec.loader.exec_module = run_and_take  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, AfterTorch())
