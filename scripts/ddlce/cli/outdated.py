"""`ddlce outdated`: locked sources of which there are newer versions."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict
from typing import Annotated

import typer

from ddlce.cli.common import JsonOption, app, err, out, print_json
from ddlce.errors import SourceError
from ddlce.settings import load_settings


@app.command(epilog="Example: ddlce outdated 'debian-source:*' pypi:torch")
def outdated(
    patterns: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SOURCE]...", help="Locked packages, e.g. 'pypi:jupyter*'; all by default."
        ),
    ] = None,
    withdrawn: Annotated[
        bool,
        typer.Option("--withdrawn", help="Name wheels that their authors have withdrawn, too."),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Show locked sources that have newer versions, security updates first.

    pip and apt are asked, as this machine has set them up. Nothing changes.
    """
    from ddlce.upkeep.outdated import find_outdated

    with err.status("asking pip and apt"):
        answer = find_outdated(load_settings(), patterns or (), withdrawn=withdrawn)
    if json:
        print_json(asdict(answer))
    for gone in () if json else answer.withdrawn:
        where = f" ({gone.place.where})" if gone.place.where else ""
        out.print(f"withdrawn {gone.place.spec}{where}: {gone.locked}: {gone.reason}", markup=False)
    for each in () if json else answer.outdated:
        place = each.place
        where = f" ({place.where})" if place.where else ""
        held = f"; held by {', '.join(each.held_by)}" if each.held_by else ""
        mark = "security" if each.security else "newer"
        out.print(
            f"{mark:<9} {place.spec}{where}: {each.locked} → {each.newest}{held}", markup=False
        )
    if not json:
        security = sum(each.security for each in answer.outdated)
        out.print(
            f"{answer.asked} packages asked for, {len(answer.outdated)} of them with a newer "
            f"version, {security} for security"
            + (f", {len(answer.withdrawn)} withdrawn" if withdrawn else "")
        )
    if answer.unknown:
        alike: dict[str, list[str]] = defaultdict(list)
        for spec, reason in sorted(answer.unknown.items()):
            alike[reason].append(spec)
        raise SourceError(
            "\n".join(f"{', '.join(specs)}: {reason}" for reason, specs in alike.items()),
            "their versions are not known; ask again for these alone",
        )
