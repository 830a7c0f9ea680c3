"""Collectives that return at once with a `Handle`, and are carried out meanwhile.

They take and refuse the same arguments as their blocking namesakes, and raise the same errors.
Errors of arguments come at once, errors between the ranks from `Handle.wait`.

The operations of a group are carried out one after the other, in the order of the calls, which must
be the same on all ranks; blocking collectives of the group wait their turn behind them. A blocking
call on one rank is not matched by an asynchronous one on another. Consecutive `allreduce_async` of
the same element type and operation travel as one message while they are small: see `-fusion_bytes`
and `-fusion_wait` in DDL_OPTIONS. The results are the same; between hosts bit by bit only where the
schedule does not depend on the size (`-deterministic 1`, or a `-schedule`).
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from ddl import _collectives, _core
from ddl.errors import Result, check, make_error

if TYPE_CHECKING:
    from ddl._buffers import ArrayT
    from ddl._collectives import Group, Op

T = TypeVar("T")

# (request, arrays) of handles that were dropped before their operations were complete.
_dropped: deque[tuple[_core.Request, object]] = deque()


class Handle(Generic[T]):
    """An operation under way.

    Its arrays must not be read or written before it is complete. They stay alive until then, even
    if the handle is dropped; the outcome of an operation whose handle is dropped is not told.
    """

    def __init__(self, request: _core.Request, result: T, arrays: object) -> None:
        self._request = request
        self._result = result
        self._arrays = arrays
        self._is_done = False
        self._lock = threading.Lock()

    def done(self) -> bool:
        """Whether the operation is complete, well or not; does not wait."""
        # If the lock is taken, another thread is waiting.
        if not self._is_done and self._lock.acquire(blocking=False):
            try:
                self._settle(self._request.test())
            finally:
                self._lock.release()
        return self._is_done

    def wait(self, timeout: float | None = None) -> T:
        """Wait until the operation is complete, and return its blocking namesake's result.

        May be called again, and by several threads.

        Args:
            timeout: seconds; not limited if not given. The library's own timeout, which ends an
                operation for good, is `ddl.set_timeout`.

        Raises:
            DDLError: the ranks disagree, or one is lost or late.
            TimeoutError: not complete yet; it goes on and can be waited for again.
            ValueError: a timeout below 0.
        """
        if timeout is not None and not timeout >= 0:
            raise ValueError(f"timeout: {timeout} is not a number of seconds from 0 on")
        limit = threading.TIMEOUT_MAX if timeout is None else min(timeout, threading.TIMEOUT_MAX)
        deadline = time.monotonic() + limit
        if not self._is_done and self._lock.acquire(timeout=limit):
            try:
                self._settle(self._request.wait_for(max(0.0, deadline - time.monotonic())))
            finally:
                self._lock.release()
        if not self._is_done:
            raise TimeoutError(f"not complete after {timeout:g} s; wait again, or longer")
        if self._request.code != Result.SUCCESS:
            raise make_error(self._request.code, self._request.message)
        return self._result

    def _settle(self, is_done: bool) -> None:
        if is_done:
            self._is_done = True
            self._arrays = None

    def __del__(self) -> None:
        if not self._is_done:
            _dropped.append((self._request, self._arrays))

    def __repr__(self) -> str:
        return f"<Handle: {'complete' if self.done() else 'under way'}>"


def make_handle(started: tuple[int, _core.Request], result: T, *arrays: object) -> Handle[T]:
    """Make the handle of the call that gave `started`; let go of complete operations."""
    code, request = started
    check(code)
    handle = Handle(request, result, arrays)
    for _ in range(len(_dropped)):
        try:
            old = _dropped.popleft()
        except IndexError:  # another thread is at it
            break
        if not old[0].test():
            _dropped.append(old)
    return handle


def allreduce_async(
    x: ArrayT, op: Op = "sum", out: ArrayT | None = None, group: Group | None = None
) -> Handle[ArrayT]:
    """Start `ddl.allreduce`; its arguments, its result and its errors.

    Small ones that follow each other travel together: start as many as there are before waiting.
    """
    arguments, result = _collectives.prepare_allreduce(x, op, out, group)
    return make_handle(_core.start("allreduce", *arguments), result, x, result)


def allreduce_async_(x: ArrayT, op: Op = "sum", group: Group | None = None) -> Handle[ArrayT]:
    """Start `ddl.allreduce_`: as `allreduce_async`, in place."""
    arguments = _collectives.prepare_allreduce_(x, op, group)
    return make_handle(_core.start("allreduce", *arguments), x, x)


def broadcast_async(x: ArrayT, root: int = 0, group: Group | None = None) -> Handle[ArrayT]:
    """Start `ddl.broadcast`; its arguments, its result and its errors."""
    arguments = _collectives.prepare_broadcast(x, root, group)
    return make_handle(_core.start("broadcast", *arguments), x, x)


def allgather_async(
    x: ArrayT, out: ArrayT | None = None, group: Group | None = None
) -> Handle[ArrayT]:
    """Start `ddl.allgather`; its arguments, its result and its errors."""
    arguments, result = _collectives.prepare_allgather(x, out, group)
    return make_handle(_core.start("allgather", *arguments), result, x, result)


def reduce_scatter_async(
    x: ArrayT, op: Op = "sum", out: ArrayT | None = None, group: Group | None = None
) -> Handle[ArrayT]:
    """Start `ddl.reduce_scatter`; its arguments, its result and its errors."""
    arguments, result = _collectives.prepare_reduce_scatter(x, op, out, group)
    return make_handle(_core.start("reduce_scatter", *arguments), result, x, result)


def barrier_async(group: Group | None = None) -> Handle[None]:
    """Start `ddl.barrier`: complete when all ranks have come here, and all before it is."""
    return make_handle(
        _core.start("barrier", _collectives.handle_of(group), 0, 0, 0, 0, 0, 0), None
    )


class Stats(NamedTuple):
    """The work that a group has done so far on this rank."""

    collectives: int
    """Carried out with success; a fused message counts once."""
    requests: int
    """Operations that were queued: asynchronous ones, and blocking ones behind these."""
    fused_requests: int
    """Allreduces that travelled together with others."""
    fused_messages: int
    """The messages that carried these allreduces."""


def stats(group: Group | None = None) -> Stats:
    """Return the group's work so far on this rank; `ddl.stats()` is about the group of all."""
    code, numbers = _core.stats(_collectives.handle_of(group))
    check(code)
    return Stats(*numbers)
