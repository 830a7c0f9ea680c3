"""What the commands on environments share: options, a progress bar, a word on waiting."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from ddlce.cli.common import err

if TYPE_CHECKING:
    from ddlce.engine.worker import OnProgress

OfflineOption = Annotated[
    bool, typer.Option("--offline", help="Use only caches and folders, never the network.")
]


def say_waiting(who: str) -> None:
    """Tell whose work is waited for."""
    err.print(f"waiting: {escape(who)} is at work here")


@contextlib.contextmanager
def progress_bar(verb: str) -> Iterator[OnProgress | None]:
    """A bar on a terminal, nothing elsewhere."""
    if not err.is_terminal:
        yield None
        return
    from rich.progress import Progress as Bars

    with Bars(console=err, transient=True) as bars:
        task = bars.add_task(verb, total=None)
        yield lambda done, total, what: bars.update(
            task, completed=done, total=total, description=f"{verb} {escape(what)}"
        )
