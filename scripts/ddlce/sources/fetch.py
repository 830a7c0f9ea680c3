"""Filling the store: several downloads at once, each retried, checked and kept atomically."""

from __future__ import annotations

import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Literal

from ddlce.errors import DdlceError, SourceError
from ddlce.model.source import Source
from ddlce.settings import Settings
from ddlce.sources.client import BACKOFF_S, Cancelled, DownloadError
from ddlce.sources.download import download
from ddlce.sources.store import SourceStore

#: Downloads at once: more would not fill a line faster and would fill small machines.
PARALLEL = 4

How = Literal["present", "downloaded", "copied"]


@dataclass(frozen=True)
class Fetched:
    """How one source came to be in the store."""

    source: Source
    how: How
    path: Path
    seconds: float


class FetchProgress:
    """What a display may show. The base class shows nothing; calls come from threads."""

    def begin(self, source: Source) -> None:
        """A download or copy starts."""

    def advance(self, source: Source, done: int) -> None:
        """`done` of `source.size` bytes have arrived."""

    def retry(self, source: Source, reason: str, wait: float) -> None:
        """A try failed; the next one follows in `wait` seconds."""

    def end(self, fetched: Fetched) -> None:
        """The source is in the store."""


def fetch_sources(
    sources: Iterable[Source],
    settings: Settings,
    progress: FetchProgress | None = None,
    *,
    origin: Path | None = None,
    parallel: int = PARALLEL,
) -> list[Fetched]:
    """Bring sources into the store.

    Args:
        sources: from `sources.lock`.
        origin: a folder made by `export_sources`; then nothing else is used, no network.

    Returns:
        One entry per source, in the order given.

    Raises:
        SourceError: one or more sources could not be had, or have wrong bytes. Those that
            could be had are in the store.
        MachineError: disk, permission, a missing client.
    """
    wanted = list(sources)
    store = SourceStore(settings.sources)
    show = progress or FetchProgress()
    stop = Event()
    fetched: dict[str, Fetched] = {}
    failures: dict[str, DdlceError] = {}

    def one(source: Source) -> Fetched:
        return _fetch(source, store, settings.cache, show, origin, stop)

    with ThreadPoolExecutor(parallel, thread_name_prefix="fetch") as pool:
        # Largest first, so that no big one is left to run alone at the end.
        order = sorted(wanted, key=lambda s: -s.size)
        try:
            running = {pool.submit(one, source): source for source in order}
            for done in as_completed(running):
                source = running[done]
                try:
                    fetched[source.sha256] = done.result()
                except SourceError as error:
                    failures[source.sha256] = error
        except BaseException:
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise
    if failures:
        raise _summary([failures[s.sha256] for s in wanted if s.sha256 in failures], len(wanted))
    return [fetched[source.sha256] for source in wanted]


def export_sources(sources: Iterable[Source], settings: Settings, into: Path) -> None:
    """Lay the stored sources out in a folder, for a machine without network.

    The lock itself is copied last by the caller: a folder with a lock is complete.
    """
    store = SourceStore(settings.sources)
    target = SourceStore(into)
    for source in sources:
        if not target.intact(source):
            with target.writing(source, Event()):
                target.add(source, store.path(source))


def _fetch(
    source: Source,
    store: SourceStore,
    cache: Path,
    show: FetchProgress,
    origin: Path | None,
    stop: Event,
) -> Fetched:
    start = time.monotonic()
    how: How = "present"
    if not store.intact(source):
        with store.writing(source, stop) as partial:
            if not store.intact(source):  # another process may have brought it meanwhile
                show.begin(source)
                if origin is not None:
                    how = "copied"
                    _copy(source, store, origin)
                else:
                    how = "downloaded"
                    _download(source, store, cache, partial, show, stop)
    else:
        store.tidy(source, stop)
    fetched = Fetched(source, how, store.path(source), time.monotonic() - start)
    show.end(fetched)
    return fetched


def _copy(source: Source, store: SourceStore, origin: Path) -> None:
    file = SourceStore(origin).path(source)
    if not file.is_file():
        raise SourceError(
            f"{file}: missing; sources.lock asks for it ({source.spec})",
            f"make the folder again, where there is a network: ddlce fetch --out {origin}",
        )
    store.add(source, file)


def _download(
    source: Source, store: SourceStore, cache: Path, partial: Path, show: FetchProgress, stop: Event
) -> None:
    for wait in (*BACKOFF_S, None):
        try:
            file = download(source, partial, cache, lambda n: show.advance(source, n), stop)
            try:
                store.add(source, file)
            except SourceError as error:
                file.unlink()  # or the next run would go on from wrong bytes
                raise SourceError(
                    f"{source.spec}: the download is not the locked file: {error.message}",
                    "something between altered it, or upstream replaced the file; if you trust "
                    "the new one, lock it with `ddlce sources update`",
                ) from error
            return
        except DownloadError as error:
            if wait is None or not error.again:
                raise SourceError(
                    f"cannot fetch {source.spec} ({source.file}): {error.reason}", _advice(source)
                ) from error
            show.retry(source, error.reason, wait)
            if stop.wait(wait):
                raise Cancelled from error


def _advice(source: Source) -> str:
    if source.client.startswith("debian") and not source.url:
        name = source.spec.partition("=")[0]
        return f"lock the version that the mirror has now: ddlce sources update {name}"
    return (
        "check the network and the machine's pip or apt configuration, or bring the sources in "
        "a folder: ddlce fetch --from DIR"
    )


def _summary(errors: list[DdlceError], total: int) -> SourceError:
    if len(errors) == 1:
        return SourceError(errors[0].message, errors[0].hint)
    lines = "\n".join(f"  {error.message}" for error in errors)
    return SourceError(f"{len(errors)} of {total} sources failed:\n{lines}", errors[0].hint)
