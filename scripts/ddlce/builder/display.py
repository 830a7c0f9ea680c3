"""Progress of a build: a live line per running package, or plain lines where there is no tty."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from rich.console import Console
from rich.live import Live
from rich.table import Table

from ddlce.builder.scheduler import Running, Watch


class Display:
    """Shows what runs; what has ended stays as one line each."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.live: Live | None = None
        self.announced: set[str] = set()
        self.started: set[str] = set()

    def update(self, running: list[Running], built: dict[str, float], total: int) -> None:
        """The scheduler's `Watch`."""
        for name in built.keys() - self.announced:
            self.announced.add(name)
            self.console.print(
                f"[green]built[/]  {name}  {built[name]:.0f} s  [{len(self.announced)}/{total}]",
                markup=True,
            )
        if self.live:
            self.live.update(_table(running))
            return
        for item in running:
            if item.step.name not in self.started:
                self.started.add(item.step.name)
                self.console.print(f"start  {item.step.name}")


def _table(running: list[Running]) -> Table:
    table = Table.grid(padding=(0, 2))
    for item in running:
        table.add_row(
            "[cyan]run[/]   ",
            item.event.package or item.step.name,
            item.event.phase,
            f"{item.seconds:.0f} s",
        )
    return table


@contextlib.contextmanager
def display(console: Console) -> Iterator[Watch]:
    """A `Watch` that draws on `console` for as long as the context lasts."""
    shown = Display(console)
    if not console.is_terminal:
        yield shown.update
        return
    with Live(console=console, refresh_per_second=4, transient=True) as live:
        shown.live = live
        yield shown.update
