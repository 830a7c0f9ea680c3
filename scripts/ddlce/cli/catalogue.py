"""`ddlce catalogue`: the packages of all environments, and what is absent and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from ddlce.cli.common import JsonOption, RootOption, app, out, print_json
from ddlce.errors import InputError
from ddlce.settings import load_settings


@app.command(epilog="Example: ddlce catalogue transformers caffe")
def catalogue(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Only these packages; all by default."),
    ] = None,
    root: RootOption = None,
    json: JsonOption = False,
) -> None:
    """Show each package: version, environments, tests, licence, origin; or why it is absent.

    In a source tree, these are the packages of its locks; elsewhere, of the installed releases,
    without origins: source code, wheels, Debian, NVIDIA.
    """
    from dataclasses import asdict

    from ddlce.catalogue import list_missing, list_packages

    settings = load_settings(root)
    listed, missing = list_packages(settings), list_missing(settings)
    if names:
        wanted = {name.lower() for name in names}
        known = {package.name for package in listed} | {package.name for package in missing}
        if unknown := sorted(wanted - known):
            if settings.repo is None:
                raise InputError(
                    f"{', '.join(unknown)}: in no release under {settings.root}",
                    "`ddlce catalogue` without a name lists what they have",
                )
            raise InputError(
                f"{', '.join(unknown)}: in no environment, and no reason is written down",
                f"to add one: ddlce sources add --with-dependencies pypi:{unknown[0]}",
            )
        listed = [package for package in listed if package.name in wanted]
        missing = [package for package in missing if package.name in wanted]
    if json:
        print_json({"packages": [*map(asdict, listed)], "absent": [*map(asdict, missing)]})
        return
    rows = [
        ("name", "version", "platforms", "environments", "verified by", "origin", "licence")
    ] + [
        (
            *(package.name, package.version, ", ".join(package.platforms)),
            *(", ".join(package.environments), package.verified, package.origin, package.licence),
        )
        for package in listed
    ]
    if listed:
        _print_table(rows)
    for package in missing:
        where = f" on {package.where}" if package.where else ""
        out.print(f"absent  {package.name}{where}: {package.why}", markup=False)
    if settings.repo:
        out.print(f"{len(listed)} packages, {len(missing)} absent")
    else:
        out.print(f"{len(listed)} packages of the releases under {settings.root}", markup=False)


def _print_table(rows: Sequence[tuple[str, ...]]) -> None:
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        out.print("  ".join(cells).rstrip(), markup=False)
