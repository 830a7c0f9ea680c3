"""Collectives on JAX's arrays, inside `jit` and outside.

The first call starts ddl, as `ddl.init` does. All ranks make the same calls in the same order; JAX
keeps that of the trace. Every function but `barrier` takes a tree of arrays, too, as `jax.tree` has
them. `grad`, `jvp`, `vmap`, `scan`, `cond` and `shard_map` work. A gradient is that of the sum of
all ranks' results: that of a sum is the sum of the gradients.

Raises, for each of them:
    TypeError: a type that cannot travel, or not be reduced.
    ValueError: an unknown operation, root or shape.
    jax.errors.JaxRuntimeError: the ranks disagree, or one is lost or late; the message says which.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ddl_jax._fusion import fused
from ddl_jax._primitive import bind, group_of, size

OPS = ("sum", "mean", "min", "max", "product")


def rank() -> int:
    """Return this process's number among the ranks."""
    import ddl

    size()
    return ddl.rank()


def allreduce(x: Any, op: str = "sum", ranks: Sequence[int] | None = None) -> Any:
    """Reduce `x` element by element over the ranks; all get the result, bit by bit the same.

    Small arrays of a tree that have one type travel together.

    Args:
        x: arrays, of the same shapes on all ranks.
        op: "sum", "mean" (not for whole numbers), "min", "max" or "product".
        ranks: those that take part, among them this one, for a sum or a mean; all if not given.

    Returns:
        Arrays like `x`.
    """
    _check_op("allreduce", op)
    group, n = _group(op, ranks)

    def reduce(array: Any) -> Any:
        return _reduced(array, "allreduce", op, group, n)

    return fused(reduce, _arrays("allreduce", x, op))


def reducescatter(x: Any, op: str = "sum") -> Any:
    """Reduce `x` over the ranks and give each rank its block of rows of the result.

    Args:
        x: arrays whose first dimension is a multiple of the number of ranks.
        op: as for `allreduce`.

    Returns:
        Arrays of shape (x.shape[0] // size, *x.shape[1:]).
    """
    _check_op("reducescatter", op)

    def scatter(array: Any) -> Any:
        return _reduced(_rows("reducescatter", array), "reducescatter", op, 0, size())

    return jax.tree.map(scatter, _arrays("reducescatter", x, op))


def allgather(x: Any) -> Any:
    """Collect `x` of every rank: arrays of shape (size, *x.shape), of which row n is rank n's."""
    return jax.tree.map(lambda array: bind(array, "allgather"), _arrays("allgather", x))


def alltoall(x: Any) -> Any:
    """Send the n-th block of rows of `x` to rank n, and get one from every rank.

    Args:
        x: arrays whose first dimension is a multiple of the number of ranks.

    Returns:
        Arrays like `x`: the rows from rank 0, then those from rank 1, and so on.
    """

    def exchange(array: Any) -> Any:
        return bind(_rows("alltoall", array), "alltoall").reshape(array.shape)

    return jax.tree.map(exchange, _arrays("alltoall", x))


def broadcast(x: Any, root: int = 0) -> Any:
    """Give every rank the arrays of rank `root`, which have the same shapes on all."""
    if not 0 <= root < size():
        raise ValueError(
            f"ddl.jax.broadcast: root is {root} but must be from 0 to {size() - 1}, a rank"
        )
    arrays = _arrays("broadcast", x)
    return jax.tree.map(lambda array: bind(array, "broadcast", root=root), arrays)


def barrier() -> None:
    """Wait until all ranks have come here; in a compiled program, it keeps its place there."""
    met = bind(jnp.zeros((), jnp.float32), "barrier")
    if not isinstance(met, jax.core.Tracer):
        met.block_until_ready()


def _reduced(array: Any, kind: str, op: str, group: int, n: int) -> Any:
    """The reduction over `n` ranks; a complex mean is a sum that is divided."""
    if op == "mean" and jnp.issubdtype(array.dtype, jnp.complexfloating):
        return bind(array, kind, "sum", group=group) / n
    if op == "product" and jnp.issubdtype(array.dtype, jnp.complexfloating):
        gathered = bind(array, "allgather" if kind == "allreduce" else "alltoall")
        return jnp.prod(gathered, axis=0)
    return bind(array, kind, op, group=group)


def _group(op: str, ranks: Sequence[int] | None) -> tuple[int, int]:
    """The number of the group, 0 for all ranks, and how many ranks it has."""
    n = size()
    if ranks is None:
        return 0, n
    mine = rank()
    members = tuple(sorted(set(ranks)))
    if mine not in members or members[0] < 0 or members[-1] >= n:
        raise ValueError(
            f"ddl.jax.allreduce: ranks is {list(ranks)} but must be from 0 to {n - 1} and have "
            f"{mine}, this rank"
        )
    if op not in ("sum", "mean"):
        raise ValueError(f"ddl.jax.allreduce: op is {op!r} but must be 'sum' or 'mean' with ranks")
    return 0 if len(members) == n else group_of(members), len(members)


def _check_op(function: str, op: str) -> None:
    if op not in OPS:
        raise ValueError(f"ddl.jax.{function}: op is {op!r} but must be one of {', '.join(OPS)}")


def _arrays(function: str, x: Any, op: str = "") -> Any:
    """`x` as JAX's arrays, once each has been found to be of a type that travels."""
    size()
    return jax.tree.map(lambda value: _array(function, value, op), x)


def _array(function: str, value: Any, op: str) -> Any:
    given = getattr(value, "dtype", None)
    array = jnp.asarray(value)
    if given is not None and isinstance(value, np.ndarray) and array.dtype != given:
        raise TypeError(
            f"ddl.jax.{function}: the array is {given}, and JAX would make it {array.dtype}; give "
            f"that, or enable jax_enable_x64"
        )
    name = array.dtype.name
    if jnp.issubdtype(array.dtype, jax.dtypes.extended) or "int4" in name or "int2" in name:
        raise TypeError(f"ddl.jax.{function}: arrays of {name} do not travel; use int8")
    if op and name.startswith("float8"):
        raise TypeError(f"ddl.jax.{function}: {name} has no sum; use bfloat16 or float32")
    is_whole = not jnp.issubdtype(array.dtype, jnp.inexact)
    if op == "mean" and is_whole:
        raise TypeError(
            f"ddl.jax.{function}: the mean of {name} is no whole number; sum and divide"
        )
    if name == "bool" and op in ("sum", "product"):
        raise TypeError(f"ddl.jax.{function}: bool has no {op}; use op='max' (or) or 'min' (and)")
    if jnp.issubdtype(array.dtype, jnp.complexfloating) and op in ("min", "max"):
        raise TypeError(f"ddl.jax.{function}: {name} has no order; reduce its real part")
    return array


def _rows(function: str, array: Any) -> Any:
    n = size()
    if array.ndim == 0 or array.shape[0] % n:
        raise ValueError(
            f"ddl.jax.{function}: x has shape {array.shape}; its first dimension must be a "
            f"multiple of {n}, the number of ranks"
        )
    return array.reshape(n, array.shape[0] // n, *array.shape[1:])
