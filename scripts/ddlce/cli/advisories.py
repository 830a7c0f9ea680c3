"""`ddlce advisories`: the known holes of a release, from data that a site has carried in."""

from __future__ import annotations

from collections.abc import Iterator
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

#: Names in one line.
MOST = 8


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
    for finding in result.findings if everything else result.of_status("open"):
        out.print(_line(finding), markup=False)
    for line in _left(result):
        out.print(line, markup=False)
    counts: Any = (len(result.of_status(s)) for s in ("open", "fixed", "not affected"))
    out.print(
        "{} holes open, {} fixed, {} that do not matter; ".format(*counts)
        + f"{result.parts} parts looked up in {result.advisories} advisories"
        + (f", the newest of {result.newest[:10]}" if result.newest else ""),
        markup=False,
    )


def _left(result: Result) -> Iterator[str]:
    """Lines on the parts that no data are about."""
    for ecosystem in dict.fromkeys(part.ecosystem for part in result.left):
        names = dict.fromkeys(p.package for p in result.left if p.ecosystem == ecosystem)
        more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
        yield f"not looked up, since the data have nothing of {ecosystem}: " + (
            ", ".join([*names][:MOST]) + more
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
