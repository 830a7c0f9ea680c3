"""The blocking collectives on NumPy arrays and torch tensors, in the CUDA variant also on GPUs.

Every rank of the group calls them in the same order. They release the interpreter lock while they
wait. Their results are of the kind of their arguments.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar

import numpy as np

from ddl import _core, _frameworks, _life
from ddl._buffers import buffer_of, check_same, empty_like, is_torch
from ddl.errors import check

if TYPE_CHECKING:
    from ddl._buffers import Array, ArrayT

Op = Literal["sum", "prod", "min", "max", "average"]

_OPS = {"sum": 0, "prod": 1, "min": 2, "max": 3, "average": 4}


P = ParamSpec("P")
T = TypeVar("T")


def also_of_frameworks(function: Callable[P, T]) -> Callable[P, T]:
    """Let a framework's package have the framework's tensors: its function of the same name."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        first: Any = args[0] if args else None
        if isinstance(first, list | tuple):
            first = next((x for x in first if x is not None), None)
        module = _frameworks.module_for(first, function.__name__)
        if module is None:
            return function(*args, **kwargs)
        result: T = getattr(module, function.__name__)(*args, **kwargs)
        return result

    # Within a tf.function, TensorFlow would translate all of this: it leaves its own alone by that.
    vars(call)["autograph_info__"] = {}
    return call


class Group:
    """Some ranks of the job, in an order of their own. Made by `new_group`.

    Attributes:
        ranks: the members' ranks in the job; a member's index here is its rank in the group.
    """

    def __init__(self, ranks: tuple[int, ...], handle: int) -> None:
        self.ranks = ranks
        self._handle = handle

    @property
    def rank(self) -> int:
        """This process's rank in the group."""
        return self.ranks.index(_life.rank())

    @property
    def size(self) -> int:
        """The number of members."""
        return len(self.ranks)

    @property
    def handle(self) -> int:
        """The group's `ddl_comm_t`. ValueError once the group is freed."""
        if self._handle == 0:
            raise ValueError("group: it has been freed")
        return self._handle

    def free(self) -> None:
        """Give the group's memory back; called by all members. `ddl.finalize` does it too."""
        check(_core.comm_free(self.handle))
        self._handle = 0

    def __repr__(self) -> str:
        return f"Group(ranks={list(self.ranks)})"


def new_group(ranks: Sequence[int], tag: int = 0) -> Group | None:
    """Make a group of `ranks`, in that order; needs to be called by these ranks only.

    Args:
        ranks: distinct ranks of the job.
        tag: 0 to 24575, and frameworks' own to 32767 (ddl.h); tells apart groups with common
            members that threads make at one time.

    Returns:
        The group, or None on a rank that is no member.

    Raises:
        DDLError: an impossible rank (then also a ValueError), or a member did not come in time.
    """
    members = tuple(int(rank) for rank in ranks)
    # The library refuses impossible lists, on ranks that are no members too.
    is_possible = set(members) <= set(range(_life.size())) and len(set(members)) == len(members)
    if members and is_possible and _life.rank() not in members:
        return None
    code, handle = _core.comm_create(list(members), tag)
    check(code)
    return Group(members, handle)


def handle_of(group: Group | None) -> int:
    """Return the `ddl_comm_t` of a group, or of all ranks; starts the library if need be."""
    _life.ensure()
    return 0 if group is None else group.handle


def rank_and_size(group: Group | None) -> tuple[int, int]:
    """This process's rank in a group, or among all ranks; and their number."""
    return (_life.rank(), _life.size()) if group is None else (group.rank, group.size)


def op_of(op: str) -> int:
    """Return the DDL_Op of a name; ValueError on others."""
    try:
        return _OPS[op]
    except KeyError:
        raise ValueError(f"op: unknown operation {op!r}; use one of {', '.join(_OPS)}") from None


# Blocking and asynchronous collectives check their arguments by the same functions. Each returns
# the result, and the arguments of `_core.run` and `_core.start`: communicator, send, recv, elements
# or bytes, type, operation and root, with 0 for those that the collective does not have.
Arguments = tuple[int, int, int, int, int, int, int]


def prepare_allreduce(
    x: ArrayT, op: str, out: ArrayT | None, group: Group | None
) -> tuple[Arguments, ArrayT]:
    """Check the arguments of `allreduce`."""
    handle = handle_of(group)
    send = buffer_of("x", x)
    kind = send.reduction_type("x")
    result = empty_like(x) if out is None else out
    recv = send if result is x and out is None else buffer_of("out", result, writable=True)
    check_same("out", recv, "x", send, send.length)
    return (handle, send.address, recv.address, send.length, kind, op_of(op), 0), result


def prepare_allreduce_(x: Array, op: str, group: Group | None) -> Arguments:
    """Check the arguments of `allreduce_`."""
    handle = handle_of(group)
    data = buffer_of("x", x, writable=True)
    kind = data.reduction_type("x")
    return handle, data.address, data.address, data.length, kind, op_of(op), 0


def prepare_broadcast(x: Array, root: int, group: Group | None) -> Arguments:
    """Check the arguments of `broadcast`."""
    handle = handle_of(group)
    data = buffer_of("x", x, writable=True)
    return handle, data.address, data.address, data.nbytes, 0, 0, root


def prepare_allgather(
    x: ArrayT, out: ArrayT | None, group: Group | None
) -> tuple[Arguments, ArrayT]:
    """Check the arguments of `allgather`."""
    handle = handle_of(group)
    size = rank_and_size(group)[1]
    send = buffer_of("x", x)
    result = empty_like(x, (size, *x.shape)) if out is None else out
    recv = buffer_of("out", result, writable=True)
    check_same("out", recv, "x", send, size * send.length)
    return (handle, send.address, recv.address, send.nbytes, 0, 0, 0), result


def prepare_reduce_scatter(
    x: ArrayT, op: str, out: ArrayT | None, group: Group | None
) -> tuple[Arguments, ArrayT]:
    """Check the arguments of `reduce_scatter`."""
    handle = handle_of(group)
    size = rank_and_size(group)[1]
    send = buffer_of("x", x)
    kind = send.reduction_type("x")
    if len(x.shape) == 0 or x.shape[0] % size != 0:
        raise ValueError(
            f"x: of shape {tuple(x.shape)}; its first dimension must be a multiple of the "
            f"{size} ranks"
        )
    shape = (x.shape[0] // size, *x.shape[1:])
    result = empty_like(x, shape) if out is None else out
    recv = buffer_of("out", result, writable=True)
    check_same("out", recv, "x", send, send.length // size)
    return (handle, send.address, recv.address, recv.length, kind, op_of(op), 0), result


@also_of_frameworks
def allreduce(
    x: ArrayT, op: Op = "sum", out: ArrayT | None = None, group: Group | None = None
) -> ArrayT:
    """Reduce `x` element by element over the ranks; all get the result, bit by bit the same.

    Args:
        x: array of any shape, the same on all ranks; float16, bfloat16 (both summed in float32 and
            rounded once per level), float32, float64, int32 or int64. Contiguous.
        op: "sum", "prod", "min", "max" (both pass NaN on) or "average" (not for integers).
        out: where to put the result; x itself for in place. A new array if not given.
        group: the ranks that take part; all if not given.

    Returns:
        `out`, or the new array.

    Raises:
        TypeError, ValueError: an array that cannot be used; the message names the argument.
        DDLError: the ranks disagree, or one is lost or late.
    """
    arguments, result = prepare_allreduce(x, op, out, group)
    check(_core.run("allreduce", *arguments))
    return result


def allreduce_(x: ArrayT, op: Op = "sum", group: Group | None = None) -> ArrayT:
    """Do `allreduce` in place, as DDL itself does: x holds the result, and is returned."""
    check(_core.run("allreduce", *prepare_allreduce_(x, op, group)))
    return x


@also_of_frameworks
def allreduce_n(
    arrays: Sequence[Array], average: bool = True, group: Group | None = None
) -> list[Array]:
    """Sum or average several arrays at once: one message per element type, not one per array.

    DDL's variable DDL_GROUP_SIZE, which cut this into several messages, is not read.

    Args:
        arrays: as for `allreduce`, all NumPy or all torch; the same list on all ranks.
        average: divide by the number of ranks.
        group: the ranks that take part; all if not given.

    Returns:
        New arrays, in the order and shapes of `arrays`.

    Raises:
        As `allreduce`.
    """
    _life.ensure()
    by_type: dict[str, list[int]] = {}
    for i, x in enumerate(arrays):
        data = buffer_of(f"arrays[{i}]", x)
        data.reduction_type(f"arrays[{i}]")
        if is_torch(x) != is_torch(arrays[0]):
            raise TypeError(f"arrays[{i}]: NumPy arrays and torch tensors cannot be mixed")
        by_type.setdefault(data.dtype, []).append(i)
    results: list[Any] = [None] * len(arrays)
    for indices in by_type.values():
        flat = _concatenate([arrays[i] for i in indices])
        allreduce_(flat, "average" if average else "sum", group)
        begin = 0
        for i in indices:
            shape = tuple(arrays[i].shape)
            count = int(np.prod(shape, dtype=np.int64))
            results[i] = flat[begin : begin + count].reshape(shape)
            begin += count
    return results


def _concatenate(arrays: list[Any]) -> Any:
    if isinstance(arrays[0], np.ndarray):
        return np.concatenate([x.reshape(-1) for x in arrays])
    import torch  # the tensors show that it is loaded

    return torch.cat([x.detach().reshape(-1) for x in arrays])


@also_of_frameworks
def broadcast(x: ArrayT, root: int = 0, group: Group | None = None) -> ArrayT:
    """Copy x of rank `root` into x of all ranks, in place; returns x.

    Args:
        x: contiguous array of any type but Python objects; as many bytes on all ranks.
        root: rank in the group.
        group: the ranks that take part; all if not given.

    Raises:
        TypeError, ValueError: an array that cannot be used; the message names the argument.
        DDLError: a bad root, the ranks disagree, or one is lost or late.
    """
    check(_core.run("broadcast", *prepare_broadcast(x, root, group)))
    return x


bcast = broadcast


@also_of_frameworks
def allgather(x: ArrayT, out: ArrayT | None = None, group: Group | None = None) -> ArrayT:
    """Collect x of every rank, on every rank.

    Args:
        x: contiguous array of any type but Python objects; the same shape on all ranks.
        out: where to put the result. A new array if not given.
        group: the ranks that take part; all if not given.

    Returns:
        `out` or a new array, of shape (size, *x.shape): row n is what rank n brought.

    Raises:
        TypeError, ValueError: an array that cannot be used; the message names the argument.
        DDLError: the ranks disagree, or one is lost or late.
    """
    arguments, result = prepare_allgather(x, out, group)
    check(_core.run("allgather", *arguments))
    return result


@also_of_frameworks
def reduce_scatter(
    x: ArrayT, op: Op = "sum", out: ArrayT | None = None, group: Group | None = None
) -> ArrayT:
    """Reduce x over the ranks and give each rank its block of rows of the result.

    Args:
        x: as for `allreduce`; its first dimension must be a multiple of the number of ranks.
        op: as for `allreduce`.
        out: where to put the result. A new array if not given.
        group: the ranks that take part; all if not given.

    Returns:
        `out` or a new array, of shape (x.shape[0] // size, *x.shape[1:]).

    Raises:
        As `allreduce`.
    """
    arguments, result = prepare_reduce_scatter(x, op, out, group)
    check(_core.run("reduce_scatter", *arguments))
    return result


def barrier(group: Group | None = None) -> None:
    """Wait until all ranks have come here.

    Raises:
        DDLError: a rank is in another call, lost or late.
    """
    check(_core.run("barrier", handle_of(group), 0, 0, 0, 0, 0, 0))
