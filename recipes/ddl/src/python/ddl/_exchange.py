"""Functions that move each byte to one rank: gather, scatter, alltoall, alltoallv, send, recv.

They take contiguous NumPy arrays and torch tensors of any type but Python objects. Every rank of
the group calls the collectives in the same order, as those of the other modules.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from ddl import _core
from ddl._buffers import buffer_of, check_same, empty_like
from ddl._collectives import also_of_frameworks, handle_of, rank_and_size
from ddl.errors import DDLValueError, Result, check

if TYPE_CHECKING:
    from ddl._buffers import Array, ArrayT, Buffer
    from ddl._collectives import Group

Counts: TypeAlias = "Sequence[int] | np.ndarray[tuple[int], np.dtype[np.integer]]"


def _is_root_and_size(root: int, group: Group | None) -> tuple[bool, int]:
    """Whether this rank is `root`, and the number of ranks."""
    rank, size = rank_and_size(group)
    if not 0 <= root < size:
        message = f"root is {root} but must be from 0 to {size - 1}"
        raise DDLValueError(message, Result.ARGUMENT)
    return rank == root, size


def gather(
    x: ArrayT, root: int = 0, out: ArrayT | None = None, group: Group | None = None
) -> ArrayT | None:
    """Collect x of every rank on rank `root`.

    Args:
        x: contiguous array; the same shape on all ranks.
        root: rank in the group.
        out: where rank `root` puts the result; not looked at elsewhere. A new array if not given.
        group: the ranks that take part; all if not given.

    Returns:
        On rank `root`, `out` or a new array of shape (size, *x.shape): row n is what rank n
        brought. None on the others.

    Raises:
        TypeError, ValueError: an array that cannot be used; the message names the argument.
        DDLError: a bad root, the ranks disagree, or one is lost or late.
    """
    handle = handle_of(group)
    is_root, size = _is_root_and_size(root, group)
    send = buffer_of("x", x)
    if not is_root:
        check(_core.run("gather", handle, send.address, 0, send.nbytes, 0, 0, root))
        return None
    result = empty_like(x, (size, *x.shape)) if out is None else out
    recv = buffer_of("out", result, writable=True)
    check_same("out", recv, "x", send, size * send.length)
    check(_core.run("gather", handle, send.address, recv.address, send.nbytes, 0, 0, root))
    return result


def scatter(x: ArrayT | None, out: ArrayT, root: int = 0, group: Group | None = None) -> ArrayT:
    """Give each rank its block of rank root's x.

    Args:
        x: on rank `root`, contiguous array with `size` times the elements of `out`: the first
            are rank 0's, and so on. Not looked at elsewhere.
        out: where this rank's block goes; of the same size on all ranks.
        root: rank in the group.
        group: the ranks that take part; all if not given.

    Returns:
        `out`.

    Raises:
        As `gather`.
    """
    handle = handle_of(group)
    is_root, size = _is_root_and_size(root, group)
    recv = buffer_of("out", out, writable=True)
    address = 0
    if is_root:
        if x is None:
            raise TypeError("x: None, but this is the root, whose array the ranks are to get")
        send = buffer_of("x", x)
        check_same("x", send, "out", recv, size * recv.length)
        address = send.address
    check(_core.run("scatter", handle, address, recv.address, recv.nbytes, 0, 0, root))
    return out


@also_of_frameworks
def alltoall(x: ArrayT, out: ArrayT | None = None, group: Group | None = None) -> ArrayT:
    """Send the n-th block of rows of x to rank n, and get one from every rank.

    Args:
        x: contiguous array of the same shape on all ranks, whose first dimension is a multiple of
            their number. (For TensorFlow's tensors: see `ddl_tensorflow.alltoall`.)
        out: where to put the result; not x. A new array if not given.
        group: the ranks that take part; all if not given.

    Returns:
        `out` or a new array, of x's shape: the rows from rank 0, then those from rank 1, and so on.

    Raises:
        As `gather`.
    """
    handle = handle_of(group)
    size = rank_and_size(group)[1]
    send = buffer_of("x", x)
    if len(x.shape) == 0 or x.shape[0] % size != 0:
        raise ValueError(
            f"x: of shape {tuple(x.shape)}; its first dimension must be a multiple of the "
            f"{size} ranks"
        )
    result = empty_like(x) if out is None else out
    recv = buffer_of("out", result, writable=True)
    check_same("out", recv, "x", send, send.length)
    check(_core.run("alltoall", handle, send.address, recv.address, send.nbytes // size, 0, 0, 0))
    return result


def alltoallv(
    x: ArrayT,
    send_counts: Counts,
    recv_counts: Counts,
    out: ArrayT | None = None,
    group: Group | None = None,
) -> ArrayT:
    """Send each rank its own number of rows of x, and get as many as each has for us.

    Args:
        x: contiguous array; its rows for rank 0 come first, then those for rank 1, and so on.
        send_counts: how many rows each rank gets, one number per rank.
        recv_counts: how many rows come from each rank, as that rank has in its `send_counts`.
        out: where to put the result; not x. A new array if not given.
        group: the ranks that take part; all if not given.

    Returns:
        `out` or a new array, of shape (sum(recv_counts), *x.shape[1:]), in the order of the ranks.

    Raises:
        As `gather`; also when two ranks differ about what one sends to the other.
    """
    handle = handle_of(group)
    size = rank_and_size(group)[1]
    send = buffer_of("x", x)
    if len(x.shape) == 0:
        raise ValueError("x: a single number has no rows; use x.reshape(1)")
    sent = _counts("send_counts", send_counts, size)
    received = _counts("recv_counts", recv_counts, size)
    if sum(sent) != x.shape[0]:
        raise ValueError(f"send_counts: {sum(sent)} rows in all, but x has {x.shape[0]}")
    result = empty_like(x, (sum(received), *x.shape[1:])) if out is None else out
    recv = buffer_of("out", result, writable=True)
    row = int(np.prod(x.shape[1:], dtype=np.int64))
    check_same("out", recv, "x", send, sum(received) * row)
    _check_apart(send, recv)
    width = row * x.itemsize
    check(
        _core.alltoallv(
            handle,
            send.address,
            [count * width for count in sent],
            recv.address,
            [count * width for count in received],
        )
    )
    return result


def _counts(name: str, counts: Counts, size: int) -> list[int]:
    """One whole number from 0 for each rank."""
    found = [int(count) for count in counts]
    if len(found) != size or any(a != b or a < 0 for a, b in zip(found, counts, strict=True)):
        raise ValueError(f"{name}: expected {size} whole numbers from 0, got {list(counts)}")
    return found


def _check_apart(send: Buffer, recv: Buffer) -> None:
    if send.address < recv.address + recv.nbytes and recv.address < send.address + send.nbytes:
        raise ValueError("out: it overlaps with x; use an array of its own")


def send(x: Array, dest: int, tag: int = 0, group: Group | None = None) -> None:
    """Send x to rank `dest`, which calls `recv`; returns when x may be changed again.

    Args:
        x: contiguous array.
        dest: rank in the group.
        tag: 0 to 2**31 - 1; tells apart messages on the way between two ranks.
        group: whose ranks are meant; all if not given.

    Raises:
        TypeError, ValueError: an array that cannot be used; the message names the argument.
        DDLError: a bad rank or tag, or the other rank is lost or late.
    """
    handle = handle_of(group)
    data = buffer_of("x", x)
    check(_core.send(handle, data.address, data.nbytes, dest, tag))


def recv(out: ArrayT, source: int, tag: int = 0, group: Group | None = None) -> ArrayT:
    """Receive from rank `source` into `out`, which is returned.

    Args:
        out: contiguous array of exactly as many bytes as are sent.
        source: rank in the group.
        tag: as `send` has it.
        group: whose ranks are meant; all if not given.

    Raises:
        TypeError, ValueError: an array that cannot be used; the message names the argument.
        DDLError: a bad rank or tag, a message of another size (`Result.MISMATCH`), or the other
            rank is lost or late.
    """
    handle = handle_of(group)
    data = buffer_of("out", out, writable=True)
    check(_core.recv(handle, data.address, data.nbytes, source, tag))
    return out
