"""Programs of some of the ranks.

XLA asks for a communicator in the middle of a program's first run, and does not say which ranks
run it. So the library is told here, for that run alone; those of all ranks need nothing.
"""

from __future__ import annotations

import ctypes
import re
from functools import cache, wraps
from typing import Any
from weakref import WeakSet

import jax
import jax.numpy as jnp
from jax._src.interpreters import pxla

from ddl_jax import _hook

_COLLECTIVE = re.compile(r" (all-reduce|all-gather|reduce-scatter|all-to-all|collective-)")


@cache
def library() -> ctypes.CDLL:
    """The library that XLA has loaded."""
    loaded = ctypes.CDLL(_hook.library())
    loaded.ddl_jax_collectives.restype = ctypes.c_ulonglong
    return loaded


def watch() -> None:
    """Tell the library of each program that some ranks alone run, until a run has gone well."""
    run = pxla.ExecuteReplicated.__call__
    has_run: WeakSet[Any] = WeakSet()

    @wraps(run)
    def run_and_remember(self: Any, *args: Any) -> Any:
        if self in has_run:
            return run(self, *args)
        results = run_and_tell(self, *args)
        has_run.add(self)
        return results

    def run_and_tell(self: Any, *args: Any) -> Any:
        ranks = _ranks_of(self)
        if len(ranks) == jax.process_count() or (len(ranks) < 2 and not _communicates(self)):
            return run(self, *args)
        wait()  # what was dispatched before is of other ranks
        library().ddl_jax_set_program((ctypes.c_int * len(ranks))(*ranks), len(ranks))
        try:
            return jax.block_until_ready(run(self, *args))
        finally:
            library().ddl_jax_set_program(None, 0)

    pxla.ExecuteReplicated.__call__ = run_and_remember


def wait() -> None:
    """Wait for all programs of this thread, also those whose results nobody holds any more."""
    jax.block_until_ready(jax.live_arrays())
    wait_for_device()


def wait_for_device() -> None:
    """Wait for what this thread has dispatched: a CPU client runs it in its order."""
    with jax.default_device(jax.local_devices(backend="cpu")[0]):
        jax.block_until_ready(jnp.zeros(()) + 0)


def _ranks_of(program: Any) -> list[int]:
    shardings = (*program.out_handler.out_shardings, *program.in_handler.in_shardings)
    return sorted({device.process_index for s in shardings for device in s.device_set})


def _communicates(program: Any) -> bool:
    """Whether a program of one device asks for a communicator: a mesh of one may do so."""
    return _COLLECTIVE.search(program.xla_executable.hlo_modules()[0].to_string()) is not None
