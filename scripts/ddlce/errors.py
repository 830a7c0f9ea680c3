"""The errors that a user may see.

Every failure that a user can cause or must act on is a `DdlceError`: one message that names
the file or argument and says what was wrong, and a hint that says what to do. The CLI prints
both and exits with `exit_code`; nothing else reaches the terminal.
"""

from __future__ import annotations


class DdlceError(Exception):
    """Base of all designed errors.

    Args:
        message: what was wrong, naming the file, package or argument.
        hint: what to do about it; one sentence, or a command.
    """

    #: Documented in `ddlce --help`: 1 the work failed, 2 bad input, 3 the machine, 4 a source.
    exit_code = 1

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class WorkError(DdlceError):
    """The work itself failed: a build, a test, a verification."""

    exit_code = 1


class InputError(DdlceError):
    """A recipe, manifest, lock, flag or name given by the user is wrong."""

    exit_code = 2


class MachineError(DdlceError):
    """The machine lacks something: a program, disk space, permission."""

    exit_code = 3


class SourceError(DdlceError):
    """A source could not be had, or its bytes are not the locked ones."""

    exit_code = 4


def not_the_locked(where: object, sha256: str) -> str:
    """The message on a file whose bytes are not the locked ones.

    Args:
        where: its path or address.
        sha256: the locked digest, in hex; its beginning is enough to find it in a lock.
    """
    return f"{where}: its sha256 is not the locked {sha256[:16]}…"


def print_error(error: DdlceError) -> None:
    """Print one designed error on standard error: what was wrong, then what to do."""
    from rich.console import Console
    from rich.markup import escape

    err = Console(stderr=True, emoji=False, highlight=False, soft_wrap=True)
    err.print(f"[bold red]error:[/] {escape(error.message)}")
    if error.hint:
        err.print(f"[bold]hint:[/]  {escape(error.hint)}")
