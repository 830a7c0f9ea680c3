"""`ddlce fetch`: fill the source store from sources.lock."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ddlce.cli.common import OUT, CudaOption, JsonOption, SetOption, app, err, out, print_json
from ddlce.cli.signed import require_signed
from ddlce.errors import InputError
from ddlce.settings import SOURCES_LOCK

if TYPE_CHECKING:
    from ddlce.model.source import Source, SourcesLock
    from ddlce.sources import Fetched


@app.command()
def fetch(
    packages: Annotated[
        list[str] | None,
        typer.Argument(help="Only the sources of these packages.", show_default=False),
    ] = None,
    into: Annotated[
        Path | None,
        typer.Option(*OUT, help="Also fill this folder, for a machine with no network."),
    ] = None,
    origin: Annotated[
        Path | None,
        typer.Option("--from", help="Use only this folder, made by --out; no network."),
    ] = None,
    cuda: CudaOption = "",
    extra: SetOption = "",
    json: JsonOption = False,
) -> None:
    """Download every source named in sources.lock, check it and keep it.

    Those of packages for CUDA alone are some gigabytes; they come with --cuda, or by name. Those
    of a set come with --set.

    What is there already is not downloaded again; a killed run is resumed by running it again.

    Example: ddlce fetch --out /media/stick   and, on the other machine,
             ddlce fetch --from /media/stick
    """
    from ddlce.cli.progress import show_progress
    from ddlce.files import sha256_file, write_atomic
    from ddlce.model.source import SourcesLock
    from ddlce.settings import load_settings
    from ddlce.sources import fetch_sources
    from ddlce.sources.fetch import export_sources
    from ddlce.sources.locking import cuda_sources, set_sources

    if into and origin:
        raise InputError("--out and --from: give one of the two")
    if origin and not (origin / SOURCES_LOCK).is_file():
        raise InputError(
            f"--from {origin}: not a complete folder of sources ({SOURCES_LOCK} is missing)",
            f"make it, where there is a network: ddlce fetch --out {origin}",
        )
    settings = load_settings()
    lock = SourcesLock.load(settings.sources_lock)
    require_signed(settings, {SOURCES_LOCK: sha256_file(settings.sources_lock)})
    left_out = set[str]()
    if not packages:
        left_out = cuda_sources(settings, but=cuda) | set_sources(settings, but=extra)
    wanted = _select(lock, packages or [], left_out)
    with show_progress(wanted) as progress:
        fetched = fetch_sources(wanted, settings, progress, origin=origin)
    if into:
        export_sources(wanted, settings, into)
        write_atomic(into / SOURCES_LOCK, SourcesLock(sources=wanted).to_yaml())
    if json:
        print_json([_report(f) for f in fetched])
    else:
        _summarise(fetched, into)


def _select(lock: SourcesLock, names: list[str], left_out: set[str]) -> list[Source]:
    if not names:
        return [source for source in lock.sources if source.sha256 not in left_out]
    known = {source.package for source in lock.sources}
    for name in names:
        if name not in known:
            from difflib import get_close_matches

            near = get_close_matches(name, known, n=3)
            raise InputError(
                f"{SOURCES_LOCK} has no source of a package {name!r}",
                f"did you mean {', '.join(near)}?" if near else "ddlce sources add",
            )
    return [source for source in lock.sources if source.package in names]


def _report(fetched: Fetched) -> dict[str, object]:
    source = fetched.source
    return {
        "source": source.spec,
        "file": source.file,
        "size": source.size,
        "sha256": source.sha256,
        "path": str(fetched.path),
        "how": fetched.how,
        "seconds": round(fetched.seconds, 3),
    }


def _summarise(fetched: list[Fetched], into: Path | None) -> None:
    total = sum(f.source.size for f in fetched)
    new = [f for f in fetched if f.how != "present"]
    arrived = sum(f.source.size for f in new)
    out.print(
        f"{len(fetched)} sources ({total / 1e6:.0f} MB) are here; "
        f"{len(new)} of them new ({arrived / 1e6:.0f} MB)"
    )
    if into:
        err.print(f"{into} is complete: carry it over and run `ddlce fetch --from {into}` there")
