"""`ddlce lock`: from a manifest to exact packages."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from ddlce.cli.common import JsonOption, err, out, print_json
from ddlce.errors import InputError
from ddlce.settings import load_settings

if TYPE_CHECKING:
    from ddlce.lock import Locked

ChannelOption = Annotated[
    str | None,
    typer.Option("--channel", help="Folder or URL of our channel.", show_default=False),
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog="Example: ddlce lock ddl-ce --check")(lock)


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
    """Solve a manifest for each of its platforms and write envs/locks/."""
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
