"""What is registered to run at a process's exit asks these, before it speaks for the rank."""

from __future__ import annotations

import sys

from ddl import _core


def is_the_ranks() -> bool:
    """Whether this process is the rank in which the library runs, and not one forked from it.

    A forked process runs the exit functions of its parent, whose MPI and sockets it shares.
    """
    return _core.initialized() and not _core.is_forked()


def failure() -> BaseException | None:
    """Return the uncaught exception by which the interpreter ends.

    `sys.last_value` alone does not say it: pytest and consoles set it for exceptions that they
    have caught, for a debugger. An uncaught one has come through the outermost frame, and after it
    no prompt of a console goes on.
    """
    error: BaseException | None = getattr(sys, "last_value", None)
    if error is None or hasattr(sys, "ps1"):
        return None
    trace = error.__traceback__
    return error if trace is None or trace.tb_frame.f_back is None else None
