"""`ddlce lock`: from a manifest to exact packages."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from ddlce.cli.common import JsonOption, RootOption, app, err, out, print_json
from ddlce.cli.group import ITSELF, OrItself
from ddlce.errors import InputError
from ddlce.model.envlock import EnvLock
from ddlce.settings import Settings, load_settings

if TYPE_CHECKING:
    from ddlce.lock import Locked
    from ddlce.lockdiff import Difference
    from ddlce.upkeep.holes import Holes

ChannelOption = Annotated[
    str | None,
    typer.Option("--channel", help="Folder or URL of our channel.", show_default=False),
]


group = typer.Typer(
    cls=OrItself, help="Solve a manifest for each of its platforms and write envs/locks/."
)
app.add_typer(group, name="lock")


@group.command(ITSELF, epilog="Example: ddlce lock ddl-ce --check")
def lock(
    env: Annotated[str, typer.Argument(help="A manifest in envs/.")] = "ddl-ce",
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit 1 when a lock is out of date.")
    ] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Say which packages need each package.")
    ] = False,
    explicit: Annotated[
        Path | None,
        typer.Option("--explicit", help="Also write this platform's lock for stock conda."),
    ] = None,
    channel: ChannelOption = None,
    json: JsonOption = False,
) -> None:
    """Solve a manifest for each of its platforms and write envs/locks/.

    `ddlce lock diff OLD NEW` compares two locks.
    """
    from ddlce.lock import channel_address, lock_env

    settings = load_settings()
    address = channel_address(channel or settings.channel)
    results = lock_env(settings, env, address, check=check)
    if explicit:
        _write_explicit(results, explicit, address)
    if json:
        print_json([_as_json(result) for result in results])
    else:
        for result in results:
            _show(result, explain=explain)
    if any(result.state == "stale" for result in results):
        if not json:
            err.print(f"a lock is out of date; write it with: ddlce lock {escape(env)}")
        raise typer.Exit(1)


@group.command(epilog="Example: ddlce lock diff ddl-ce/2026.11-0123abcd new.lock")
def diff(
    old: Annotated[str, typer.Argument(help="A lock file, or an installed release.")],
    new: Annotated[str, typer.Argument(help="The same, to compare with it.")],
    advisories: Annotated[
        Path | None,
        typer.Option("--advisories", help="Data of `ddlce advisories`: show the known holes, too."),
    ] = None,
    sboms: Annotated[
        Path | None,
        typer.Option("--sboms", help="The folder with both SBOMs; the channel's by default."),
    ] = None,
    root: RootOption = None,
    json: JsonOption = False,
) -> None:
    """Show the changes from one lock to another: as Markdown, for the notes of a release.

    Versions, licences, sizes, ABI pins, and what users will notice; known holes with --advisories.
    """
    from ddlce.lockdiff import compare
    from ddlce.upkeep.changes import to_json, to_markdown

    settings = load_settings(root)
    found = compare(_read(settings, old), _read(settings, new))
    holes = _holes(settings, found, advisories, sboms) if advisories else None
    if json:
        print_json(to_json(found, holes))
    elif found.old == found.new:
        lock = found.new
        out.print(
            f"nothing changes: both are {lock.env} {lock.release} for {lock.platform}, "
            f"digest {lock.digest[:8]}",
            markup=False,
        )
    else:
        typer.echo(to_markdown(found, holes), nl=False)


def _holes(settings: Settings, found: Difference, data: Path, sboms: Path | None) -> Holes:
    from ddlce.advisories.statements import statements_of
    from ddlce.model.channel import SBOMS
    from ddlce.upkeep.holes import compare_holes

    folder = sboms or settings.channel / SBOMS
    return compare_holes(found, data, folder, statements_of(settings))


def _read(settings: Settings, text: str) -> EnvLock:
    """The lock in a file, or of an installed release."""
    from ddlce.env.layout import LOCK_COPY, find_env

    path = Path(text)
    return EnvLock.load(path if path.is_file() else find_env(settings, text) / LOCK_COPY)


def _write_explicit(results: list[Locked], target: Path, channel: str) -> None:
    from ddlce.files import write_atomic
    from ddlce.lock import channel_addresses, explicit
    from ddlce.platforms import this_platform

    for result in results:
        if result.lock and result.platform == this_platform():
            addresses = channel_addresses(result.lock.channels, channel)
            write_atomic(target, explicit(result.lock, addresses))
            return
    raise InputError(
        f"there is no lock for this machine ({this_platform()}) to write to {target}",
        "add the platform to the manifest, or run this on another machine",
    )


def _show(result: Locked, *, explain: bool) -> None:
    from ddlce.lock import required_by

    if result.lock is None:
        out.print(f"skipped    {result.platform}: {escape(result.why)}")
        return
    out.print(
        f"{result.state:<10} {result.platform}: {len(result.lock.packages)} packages, "
        f"{result.lock.digest[:8]}  {escape(str(result.path))}"
    )
    for change in result.changes:
        out.print(f"  {change}", markup=False)
    if explain:
        needed = required_by(result.lock)
        for package in result.lock.packages:
            by = ", ".join(needed[package.name]) or "nothing"
            out.print(
                f"  {package.name} {package.version} {package.build}  needed by {by}", markup=False
            )


def _as_json(result: Locked) -> dict[str, Any]:
    from ddlce.lock import required_by

    data: dict[str, Any] = {
        "platform": result.platform,
        "state": result.state,
        "file": str(result.path),
        "changes": list(result.changes),
    }
    if result.why:
        data["why"] = result.why
    if result.lock:
        needed = required_by(result.lock)
        data["digest"] = result.lock.digest
        data["packages"] = [
            {**p.model_dump(exclude_defaults=True), "needed_by": needed[p.name]}
            for p in result.lock.packages
        ]
    return data
