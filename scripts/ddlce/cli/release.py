"""`ddlce release`: what must be true before a release is made; then its bundles and its tag."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from ddlce.cli.common import JsonOption, RootOption, app, err, out, print_json
from ddlce.errors import InputError, WorkError
from ddlce.settings import Settings, load_settings


@app.command(epilog="Example: ddlce release --again ../second/packages --tag")
def release(
    envs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ENV]...", help="Environments; all that are locked by default."),
    ] = None,
    again: Annotated[
        Path | None, typer.Option("--again", help="The packages of a second build.")
    ] = None,
    changelog: Annotated[
        bool,
        typer.Option("--changelog", help="Add to CHANGELOG.md what the locks change, and end."),
    ] = False,
    tag: Annotated[
        bool, typer.Option("--tag", help="Date CHANGELOG.md, commit and tag, if all is well.")
    ] = False,
    bundles: Annotated[
        Path | None, typer.Option("--bundle", help="Before the tag, write the bundles here.")
    ] = None,
    channel: Annotated[
        str | None, typer.Option("--channel", help="Folder or URL of our channel.")
    ] = None,
    root: RootOption = None,
    json: JsonOption = False,
) -> None:
    """Check that a release can be made: clean tree, new version, changelog, locks, smoke, bytes.

    Exit 1 where something is missing. Without --changelog and --tag, nothing changes.
    """
    from datetime import UTC, datetime

    from ddlce.lock import channel_address
    from ddlce.upkeep import release as steps

    settings = load_settings(root)
    _refuse_mixtures(changelog, tag, again, bundles, channel)
    chosen = envs or steps.environments(settings)
    if changelog:
        _add_part(settings, chosen, json=json)
        return
    with err.status("checking"):
        address = channel_address(channel or settings.channel)
        checks = steps.check_release(settings, chosen, address, again)
    missing = [check for check in checks if check.problem]
    if json:
        print_json([asdict(check) for check in checks])
    for check in () if json else checks:
        said = (
            f"missing  {check.name}: {check.problem}" if check.problem else f"ok       {check.name}"
        )
        out.print(said, markup=False)
    if missing:
        raise WorkError(f"{len(missing)} of {len(checks)} things are missing", "see above")
    if tag:
        written = _bundles(settings, chosen, channel, bundles) if bundles else []
        done = [f"wrote {path}" for path in written]
        version = steps.version_of(settings, chosen)
        steps.tag(settings, version, datetime.now(UTC).date())
        for line in () if json else (*done, f"tagged {version}"):
            out.print(line, markup=False)


def _refuse_mixtures(
    changelog: bool, tag: bool, again: Path | None, bundles: Path | None, channel: str | None
) -> None:
    if changelog and (tag or bundles or again):
        raise InputError("--changelog goes alone", "edit what it adds, commit that, then check")
    if bundles and not tag:
        raise InputError("--bundle goes with --tag", "for a bundle alone: ddlce bundle ENV")
    if bundles and "://" in (channel or ""):
        raise InputError("--bundle needs the folder of the channel", "--channel FOLDER")


def _add_part(settings: Settings, envs: Sequence[str], *, json: bool) -> None:
    from ddlce.upkeep.changelog import add_part
    from ddlce.upkeep.release import version_of

    part = add_part(settings, envs, version_of(settings, envs))
    since = " and ".join(part.since)
    if json:
        print_json(asdict(part))
    elif part.points:
        lines = f"{len(part.points)} {'line' if len(part.points) == 1 else 'lines'}"
        out.print(
            f"added {lines} to {part.path}, since {since}; edit them, and commit", markup=False
        )
    else:
        out.print(f"{part.path} has all that changes since {since}", markup=False)


def _bundles(
    settings: Settings, envs: Sequence[str], channel: str | None, folder: Path
) -> list[str]:
    """Write them all, so that a release which cannot be handed over gets no tag."""
    from ddlce.cli.bundle import write
    from ddlce.lock import locks_of

    packages = Path(channel) if channel else settings.channel
    return [write(settings, lock, packages, folder).path for lock in locks_of(settings, envs)]
