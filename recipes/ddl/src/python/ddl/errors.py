"""The package's exceptions."""

from __future__ import annotations

import enum

from ddl import _core


class Result(enum.IntEnum):
    """The result codes of ddl.h."""

    SUCCESS = 0
    NOT_INITIALIZED = 1
    ARGUMENT = 2
    MISMATCH = 3
    TIMEOUT = 4
    PEER_LOST = 5
    MPI = 6
    SYSTEM = 7
    DEVICE = 8


class DDLError(RuntimeError):
    """A collective or the library failed; the message says what, on which rank and host.

    After `Result.MISMATCH` the group can still be used; after `TIMEOUT`, `PEER_LOST`, `MPI`,
    `SYSTEM` or `DEVICE` every further call on it raises the same error.

    Attributes:
        code: which kind of failure.
    """

    def __init__(self, message: str, code: Result) -> None:
        super().__init__(message)
        self.code = code


class DDLValueError(DDLError, ValueError):
    """A bad argument or option (`Result.ARGUMENT`); nothing was communicated."""


def check(code: int) -> None:
    """Raise the error that the result code `code` of this thread's latest call stands for."""
    if code != Result.SUCCESS:
        raise make_error(code, _core.last_error())


def make_error(code: int, message: str) -> DDLError:
    """Return the exception that the result code `code`, which is not SUCCESS, stands for."""
    error = DDLValueError if code == Result.ARGUMENT else DDLError
    return error(message, Result(code))
