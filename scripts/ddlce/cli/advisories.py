"""`ddlce advisories`: the known holes of a release, from data that a site has carried in."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ddlce.cli.common import JsonOption, app, out, print_json
from ddlce.errors import WorkError
from ddlce.platforms import BUILD_PLATFORM
from ddlce.settings import Settings, load_settings

if TYPE_CHECKING:
    from ddlce.advisories.match import Result
    from ddlce.advisories.model import Finding, Part


@app.command(epilog="Example: ddlce advisories ddl-ce --from /data/osv")
def advisories(
    data: Annotated[
        Path,
        typer.Option(
            "--from",
            help="OSV's dumps for PyPI and Debian, Debian's data/json, or its packages, whose "
            "changelogs name the holes that they mend.",
        ),
    ],
    env: Annotated[str, typer.Argument(help="An environment that is locked.")] = "ddl-ce",
    sbom: Annotated[
        Path | None, typer.Option("--sbom", help="Another SBOM than the channel's (CycloneDX).")
    ] = None,
    vex: Annotated[
        Path | None, typer.Option("--vex", help="Other statements than recipes/vex.yaml.")
    ] = None,
    platform: Annotated[
        str, typer.Option("--platform", help="The lock's platform.")
    ] = BUILD_PLATFORM,
    everything: Annotated[
        bool, typer.Option("--all", help="Show holes that are fixed or do not matter, too.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Show the known holes of a release, without a network; exit 1 where one is open.

    What the release is made of comes from its SBOM. A hole is fixed where a patch has its number,
    and not open where a statement says why.
    """
    from ddlce.advisories.match import find_holes
    from ddlce.advisories.parts import read_parts
    from ddlce.advisories.statements import load_statements, statements_of

    settings = load_settings()
    parts = read_parts(sbom) if sbom else _parts_of(settings, env, platform)
    result = find_holes(parts, data, load_statements(vex) if vex else statements_of(settings))
    if json:
        print_json(asdict(result))
    else:
        _show(result, everything=everything)
    if still_open := len(result.of_status("open")):
        raise WorkError(
            f"{still_open} holes are open", "docs/howto/update.md says how to take a newer source"
        )


def _parts_of(settings: Settings, env: str, platform: str) -> list[Part]:
    from ddlce.lock import lock_path
    from ddlce.model.channel import SBOMS
    from ddlce.model.envlock import EnvLock
    from ddlce.upkeep.holes import parts_of

    lock = EnvLock.load(lock_path(settings, env, platform))
    return parts_of(lock, settings.channel / SBOMS)


def _show(result: Result, *, everything: bool) -> None:
    from ddlce.advisories.match import gaps

    for finding in result.findings if everything else result.of_status("open"):
        out.print(_line(finding), markup=False)
    for gap in gaps(result.left):
        out.print(f"not looked up, {gap}", markup=False)
    counts: Any = (len(result.of_status(s)) for s in ("open", "fixed", "not affected"))
    out.print(
        "{} holes open, {} fixed, {} that do not matter; ".format(*counts)
        + f"{result.parts} parts looked up in {result.advisories} advisories"
        + (f", the newest of {result.newest[:10]}" if result.newest else ""),
        markup=False,
    )


def _line(finding: Finding) -> str:
    part = finding.part
    words = [
        f"{finding.status:<12} {part.package}: {finding.hole}",
        f"in {part.name} {part.version} ({part.ecosystem})",
    ]
    if finding.severity:
        words.append(finding.severity)
    if finding.status == "open":
        words.append(f"fixed in {', '.join(finding.fixed)}" if finding.fixed else "not fixed yet")
    return ", ".join(words) + f": {finding.why or finding.summary}"[:200]
