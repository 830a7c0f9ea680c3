"""`ddlce release`: what must be true before a release is made; then its tag."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from ddlce.cli.common import JsonOption, RootOption, err, out, print_json
from ddlce.errors import WorkError
from ddlce.settings import load_settings


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog="Example: ddlce release --again ../second/packages --tag")(release)


def release(
    envs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ENV]...", help="Environments; all that are locked by default."),
    ] = None,
    again: Annotated[
        Path | None, typer.Option("--again", help="The packages of a second build.")
    ] = None,
    tag: Annotated[
        bool, typer.Option("--tag", help="Date CHANGELOG.md, commit and tag, if all is well.")
    ] = False,
    channel: Annotated[
        str | None, typer.Option("--channel", help="Folder or URL of our channel.")
    ] = None,
    root: RootOption = None,
    json: JsonOption = False,
) -> None:
    """Check that a release can be made: clean tree, new version, changelog, locks, smoke, bytes.

    Exit 1 where something is missing. Without --tag, nothing changes.
    """
    from datetime import UTC, datetime

    from ddlce.lock import channel_address
    from ddlce.upkeep import release as steps

    settings = load_settings(root)
    chosen = envs or steps.environments(settings)
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
        version = steps.version_of(settings, chosen)
        steps.tag(settings, version, datetime.now(UTC).date())
        if not json:
            out.print(f"tagged {version}; next: ddlce bundle {' and '.join(chosen)}", markup=False)
