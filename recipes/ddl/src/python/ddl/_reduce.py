"""Reduction to one rank, blocking and asynchronous."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddl import _core
from ddl._async import make_handle
from ddl._buffers import buffer_of, check_same, empty_like
from ddl._collectives import handle_of, op_of, rank_and_size
from ddl.errors import check

if TYPE_CHECKING:
    from ddl._async import Handle
    from ddl._buffers import ArrayT
    from ddl._collectives import Arguments, Group, Op


def _prepare(
    x: ArrayT, root: int, op: str, out: ArrayT | None, group: Group | None
) -> tuple[Arguments, ArrayT | None]:
    """Check the arguments of `reduce`; the library checks the root."""
    handle = handle_of(group)
    send = buffer_of("x", x)
    kind = send.reduction_type("x")
    if rank_and_size(group)[0] != root:
        return (handle, send.address, 0, send.length, kind, op_of(op), root), None
    result = empty_like(x) if out is None else out
    recv = buffer_of("out", result, writable=True)
    check_same("out", recv, "x", send, send.length)
    return (handle, send.address, recv.address, send.length, kind, op_of(op), root), result


def reduce(
    x: ArrayT,
    root: int = 0,
    op: Op = "sum",
    out: ArrayT | None = None,
    group: Group | None = None,
) -> ArrayT | None:
    """Reduce `x` element by element over the ranks; rank `root` gets the result.

    Args:
        x: as for `allreduce`.
        root: rank in the group.
        op: as for `allreduce`.
        out: where rank `root` puts the result, x itself for in place; not looked at elsewhere. A
            new array if not given.
        group: the ranks that take part; all if not given.

    Returns:
        On rank `root`, `out` or the new array. None on the others.

    Raises:
        TypeError, ValueError: an array that cannot be used; the message names the argument.
        DDLError: a bad root, the ranks disagree, or one is lost or late.
    """
    arguments, result = _prepare(x, root, op, out, group)
    check(_core.run("reduce", *arguments))
    return result


def reduce_async(
    x: ArrayT,
    root: int = 0,
    op: Op = "sum",
    out: ArrayT | None = None,
    group: Group | None = None,
) -> Handle[ArrayT | None]:
    """Start `ddl.reduce`; its arguments, its result and its errors."""
    arguments, result = _prepare(x, root, op, out, group)
    return make_handle(_core.start("reduce", *arguments), result, x, result)
