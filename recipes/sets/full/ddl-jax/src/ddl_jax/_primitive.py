"""The primitive behind `ddl.jax`: one call of ddl inside a compiled program.

All calls have one ordered effect. JAX hands its token from one to the next, through calls, loops
and branches, so XLA carries them out in the order in which the program was traced. `_order.py` has
the order of programs.

Shapes: `allgather` gives (size, *x.shape). `reducescatter` takes (size, *rest) and gives rest, and
`alltoall` takes and gives (size, *rest).
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax._src import effects
from jax._src.core import abstract_token
from jax.extend import core
from jax.interpreters import ad, batching, mlir

from ddl_jax import _order

TARGET = "ddl_collective"


class CollectiveEffect(effects.Effect):  # type: ignore[misc]
    """What makes the calls keep their order."""

    def __str__(self) -> str:
        return "ddl"


EFFECT = CollectiveEffect()
for allowed in (
    effects.ordered_effects,
    effects.lowerable_effects,
    effects.control_flow_allowed_effects,
    effects.custom_derivatives_allowed_effects,
    effects.remat_allowed_effects,
    effects.shardable_ordered_effects,
):
    allowed.add_type(CollectiveEffect)
_order.keep(EFFECT)

collective_p = core.Primitive("ddl_collective")
#: The number of ranks of each group: a program that is loaded elsewhere shall find the same.
_group_sizes: dict[int, int] = {}


@cache
def size() -> int:
    """The number of ranks; starts ddl and the communicator of these calls."""
    import ddl

    ddl.init()
    group_of(())
    return ddl.size()


@cache
def group_of(ranks: tuple[int, ...]) -> int:
    """The number of the group of these ranks, which rise, or of all; collective over them."""
    import ddl
    from ddl.errors import check

    if ranks:
        size()  # the group of all is the first
    number: int = library().ddl_jax_start((ctypes.c_int * len(ranks))(*ranks), len(ranks))
    check(max(-number, 0))
    _group_sizes[number] = len(ranks) or ddl.size()
    return number


@cache
def library() -> ctypes.CDLL:
    """The library with the call that XLA makes."""
    loaded = ctypes.CDLL(str(Path(__file__).with_name("libffi.so")))
    loaded.ddl_jax_calls.restype = ctypes.c_ulonglong
    jax.ffi.register_ffi_target(TARGET, jax.ffi.pycapsule(loaded.ddl_jax_collective), "cpu")
    return loaded


def bind(x: Any, kind: str, op: str = "sum", root: int = 0, group: int = 0) -> Any:
    """The result of one collective on `x`; that of some ranks is an allreduce."""
    return collective_p.bind(x, kind=kind, op=op, root=root, group=group)


def _result_shape(shape: tuple[int, ...], kind: str) -> tuple[int, ...]:
    if kind == "allgather":
        return (size(), *shape)
    return shape[1:] if kind == "reducescatter" else shape


def _abstract(
    x: Any, *, kind: str, op: str, root: int, group: int
) -> tuple[Any, set[effects.Effect]]:
    return x.update(shape=_result_shape(x.shape, kind), weak_type=False), {EFFECT}


collective_p.def_effectful_abstract_eval(_abstract)


def _apply(x: Any, **params: Any) -> Any:
    return jax.jit(lambda value: collective_p.bind(value, **params))(x)


collective_p.def_impl(_apply)


def _lower(
    ctx: mlir.LoweringRuleContext, x: Any, *, kind: str, op: str, root: int, group: int
) -> Any:
    token = ctx.tokens_in.get(EFFECT)
    with_token = ctx.replace(
        avals_in=[abstract_token, *ctx.avals_in],
        avals_out=[abstract_token, *ctx.avals_out],
    )
    rule = jax.ffi.ffi_lowering(TARGET, has_side_effect=True)
    numbers = {"root": root, "group": group, "size": _group_sizes[group]}
    attributes = {name: np.int64(number) for name, number in numbers.items()}
    token, result = rule(with_token, token, x, kind=kind, op=op, **attributes)
    ctx.set_tokens_out(mlir.TokenSet({EFFECT: token}))
    return [result]


mlir.register_lowering(collective_p, _lower, platform="cpu")


def _jvp(
    primals: Any, tangents: Any, *, kind: str, op: str, root: int, group: int
) -> tuple[Any, Any]:
    (x,), (t,) = primals, tangents
    if kind not in ("allreduce", "reducescatter") or op in ("sum", "mean"):
        y = bind(x, kind, op, root, group)
        is_zero = type(t) is ad.Zero
        return y, ad.Zero.from_primal_value(y) if is_zero else bind(t, kind, op, root, group)
    # Whatever is not linear: all that came from the ranks is here, and JAX knows its derivative.
    reduce = {"min": jnp.min, "max": jnp.max, "product": jnp.prod}[op]
    gathering = "allgather" if kind == "allreduce" else "alltoall"
    t = ad.instantiate_zeros(t)
    every, every_t = bind(x, gathering), bind(t, gathering)
    y, y_t = jax.jvp(lambda rows: reduce(rows, axis=0), (every,), (every_t,))
    return y, y_t


ad.primitive_jvps[collective_p] = _jvp


def _transpose(ct: Any, x: Any, *, kind: str, op: str, root: int, group: int) -> list[Any]:
    """The gradient of the sum of all ranks' results, with respect to this rank's `x`."""
    if type(ct) is ad.Zero:
        return [ad.Zero(x.aval)]
    if kind == "allgather":
        return [bind(ct, "reducescatter")]
    if kind == "reducescatter":
        gathered = bind(ct, "allgather")
        return [gathered / size() if op == "mean" else gathered]
    if kind == "broadcast":
        import ddl

        total = bind(ct, "allreduce")
        return [total if ddl.rank() == root else jnp.zeros_like(total)]
    return [bind(ct, kind, op, group=group)]


ad.primitive_transposes[collective_p] = _transpose


def _batch(args: Any, dims: Any, *, kind: str, op: str, root: int, group: int) -> tuple[Any, int]:
    (x,), (dim,) = args, dims
    if kind in ("alltoall", "reducescatter"):  # the first dimension is the ranks'
        y = bind(jnp.moveaxis(x, dim, 1), kind, op, root, group)
        return y, 1 if kind == "alltoall" else 0
    y = bind(x, kind, op, root, group)
    return y, dim + 1 if kind == "allgather" else dim


batching.primitive_batchers[collective_p] = _batch
