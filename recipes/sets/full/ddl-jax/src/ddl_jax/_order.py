"""How the calls of `ddl.jax` keep their order from one program to the next.

JAX hands the token of an ordered effect from each program to the next, and does so in Python: 150
us for each program. Where a process has one device, XLA's CPU client carries out its programs in
the order in which they are dispatched, without any token. So a program makes a token of its own,
and JAX dispatches it like any other.

Programs keep JAX's token where a process has several devices: one of all of them begins beside one
of some. So do programs without results, whose error the token brings, and exported ones, which
become part of others.
"""

from __future__ import annotations

import threading
from functools import wraps
from typing import Any

import jax
from jax._src import effects, xla_bridge
from jax._src.interpreters import mlir

from ddl_jax import _programs


class _Lowering(threading.local):
    """The effect whose token the program makes that this thread lowers, until it is made."""

    effect: effects.Effect | None = None


def keep(effect: effects.Effect) -> None:
    """Have programs with this ordered effect make its token."""
    lowering = _Lowering()
    lower, lower_equations = mlir.lower_jaxpr_to_module, mlir.jaxpr_subcomp
    barrier = jax.effects_barrier

    @wraps(lower)
    def lower_jaxpr_to_module(name: str, jaxpr: Any, **words: Any) -> Any:
        found = words["ordered_effects"]
        is_alone = jaxpr.out_avals and not words["lowering_parameters"].for_export
        if effect in found and is_alone and len(jax.local_devices(backend="cpu")) == 1:
            found.remove(effect)  # from the caller's list, too, which decides how the program runs
            lowering.effect = effect
        return lower(name, jaxpr, **words)

    @wraps(lower_equations)
    def jaxpr_subcomp(
        ctx: Any, jaxpr: Any, names: Any, tokens: Any, *args: Any, **words: Any
    ) -> Any:
        if lowering.effect is not None:  # these are the equations of the program's main function
            made = mlir.TokenSet.create([lowering.effect])
            tokens = mlir.TokenSet(dict([*tokens.items(), *made.items()]))
            lowering.effect = None
        return lower_equations(ctx, jaxpr, names, tokens, *args, **words)

    @wraps(barrier)
    def effects_barrier() -> None:
        barrier()
        if xla_bridge.backends_are_initialized() and "cpu" in xla_bridge.backends():
            _programs.wait_for_device()

    mlir.lower_jaxpr_to_module = lower_jaxpr_to_module
    mlir.jaxpr_subcomp = jaxpr_subcomp
    jax.effects_barrier = effects_barrier
