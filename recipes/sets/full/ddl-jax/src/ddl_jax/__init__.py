"""JAX's collectives by ddl: those of XLA, and those of `ddl.jax` inside jit.

In a rank of a job, `import jax` takes them by itself (`_hook.py`).
"""

from __future__ import annotations


def collectives() -> int:
    """How many collectives XLA has carried out by ddl on this rank."""
    from ddl_jax import _programs

    return int(_programs.library().ddl_jax_collectives())
