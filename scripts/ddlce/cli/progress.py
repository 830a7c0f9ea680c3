"""Download progress: bars on a terminal, one plain line per source elsewhere."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from ddlce.cli.common import err
from ddlce.model.source import Source
from ddlce.sources.fetch import Fetched, FetchProgress


@contextlib.contextmanager
def show_progress(sources: Sequence[Source]) -> Iterator[FetchProgress]:
    """A display for `fetch_sources`, alive as long as the context."""
    if not err.is_terminal:
        yield _Lines()
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err, transient=True) as bars:
        yield _Bars(bars, sum(source.size for source in sources))


class _Lines(FetchProgress):
    def retry(self, source: Source, reason: str, wait: float) -> None:
        err.print(escape(f"retry    {source.file} in {wait:.0f} s: {reason}"))

    def end(self, fetched: Fetched) -> None:
        if fetched.how != "present":
            size = fetched.source.size / 1e6
            err.print(
                escape(
                    f"{fetched.how:<10} {fetched.source.file} "
                    f"({size:.1f} MB, {fetched.seconds:.1f} s)"
                )
            )


class _Bars(FetchProgress):
    """One bar for all, one per running download."""

    def __init__(self, bars: Progress, total: int) -> None:
        self.bars = bars
        self.all = bars.add_task("all sources", total=total)
        self.tasks: dict[str, TaskID] = {}

    def begin(self, source: Source) -> None:
        self.tasks[source.sha256] = self.bars.add_task(escape(source.file), total=source.size)

    def advance(self, source: Source, done: int) -> None:
        self.bars.update(self.tasks[source.sha256], completed=min(done, source.size))

    def retry(self, source: Source, reason: str, wait: float) -> None:
        self.bars.console.print(escape(f"retry {source.file} in {wait:.0f} s: {reason}"))

    def end(self, fetched: Fetched) -> None:
        self.bars.advance(self.all, fetched.source.size)
        if fetched.source.sha256 in self.tasks:
            self.bars.remove_task(self.tasks.pop(fetched.source.sha256))
