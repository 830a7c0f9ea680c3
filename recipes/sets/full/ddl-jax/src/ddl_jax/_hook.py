"""Waits for `import jax` in a rank of a job; `ddl_jax.pth` starts it with Python.

JAX reads its variables when it is imported, and jaxlib loads the library that `MPITRAMPOLINE_LIB`
names. So both are set just before, where the user has set neither. This module is in every Python
of a rank, and imports next to nothing.
"""

from __future__ import annotations

import importlib.abc
import os
import stat
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

#: Minor versions of jaxlib whose MPItrampoline asks for the ABI of our library.
JAXLIB = ("0.10.",)
CHOICE = "JAX_CPU_COLLECTIVES_IMPLEMENTATION"
TRAMPOLINE = "MPITRAMPOLINE_LIB"


def activate() -> None:
    """Prepare this process for `import jax`; once, though venvs read their .pth files twice."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def library() -> str:
    """The library that XLA's CPU client takes for MPI."""
    return f"{os.path.dirname(__file__)}/libmpiabi.so"  # noqa: PTH120


def is_a_rank(environ: Mapping[str, str]) -> bool:
    """Whether somebody answers this process's MPI: it is no mere child of a rank."""
    if environ.get("PMI_PORT") or environ.get("PMIX_RANK"):
        return True
    try:
        return stat.S_ISSOCK(os.fstat(int(environ["PMI_FD"])).st_mode)
    except (KeyError, ValueError, OSError):
        return False


def set_variables(environ: dict[str, str] | os._Environ[str]) -> None:
    """Have JAX take ddl for its collectives on CPUs, unless the user has chosen others."""
    if CHOICE in environ or TRAMPOLINE in environ:
        return
    from importlib.metadata import version as version_of

    version = version_of("jaxlib")
    if version.startswith(JAXLIB):
        environ[CHOICE], environ[TRAMPOLINE] = "mpi", library()
    elif environ.get("PMI_RANK", environ.get("PMIX_RANK")) == "0":
        sys.stderr.write(
            f"[ddl] ddl-jax is for jaxlib {JAXLIB[0]}x and this is {version}: JAX keeps its own "
            "collectives; install a jaxlib that fits\n"
        )


class _Finder(importlib.abc.MetaPathFinder):
    """Steps in before jax is loaded, and after."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "jax":
            return None
        after = sys.meta_path[sys.meta_path.index(self) + 1 :]
        found = (finder.find_spec(fullname, path, target) for finder in after)
        spec = next((spec for spec in found if spec is not None), None)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self)
        return spec


class _Loader(importlib.abc.Loader):
    """JAX's loader, with our steps around it."""

    def __init__(self, loader: importlib.abc.Loader, finder: _Finder) -> None:
        self._loader = loader
        self._finder = finder

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        sys.meta_path.remove(self._finder)
        is_rank = is_a_rank(os.environ)
        if is_rank:
            set_variables(os.environ)
        self._loader.exec_module(module)
        if is_rank:
            from ddl_jax import _job

            _job.register()
