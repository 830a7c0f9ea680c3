"""`ddlce audit`: whether a user's own libraries run wherever a release runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ddlce.cli.common import JsonOption, RootOption, app, out, print_json
from ddlce.settings import load_settings

if TYPE_CHECKING:
    from ddlce.audit.library import Release


@app.command(epilog="Example: ddlce audit mine/lib/libmine.so build/program")
def audit(
    files: Annotated[list[Path], typer.Argument(help="Shared libraries and programs.")],
    release: Annotated[
        str | None,
        typer.Option("--release", help="ENV, ENV/RELEASE or a path; the active one otherwise."),
    ] = None,
    root: RootOption = None,
    json: JsonOption = False,
) -> None:
    """Say of your own libraries whether they run wherever a release runs; exit 1 if one does not.

    The glibc that they need, the libraries that they find there, and their versions.
    """
    from dataclasses import asdict

    from ddlce.audit.library import audit_file
    from ddlce.env.layout import default_source, find_env

    settings = load_settings(root)
    prefix = find_env(settings, release) if release else default_source(settings, "--release")
    against = _read_release(prefix)
    found = [finding for path in files for finding in audit_file(path, against)]
    if json:
        print_json({"findings": [*map(asdict, found)], "ok": not found})
    for finding in () if json else found:
        out.print(f"{finding.path}: {finding.message}", markup=False)
    if found:
        raise typer.Exit(1)
    if not json:
        out.print(f"{len(files)} of {len(files)} run wherever {prefix} runs", markup=False)


def _read_release(prefix: Path) -> Release:
    from ddlce.audit.library import Release
    from ddlce.env.records import read_records

    records = read_records(prefix)
    floors = {
        match[1]
        for record in records
        for spec in record.data.get("depends", ())
        if (match := re.match(r"__glibc >=([\d.]+)", spec))
    }
    paths = sorted(entry["_path"] for record in records for entry in record.entries)
    # The environment's own folder of libraries comes before those of packages.
    paths.sort(key=lambda path: Path(path).parent != Path("lib"), reverse=True)
    libraries = {Path(path).name: path for path in paths if ".so" in Path(path).name}
    floor = max(floors, key=lambda text: [int(part) for part in text.split(".")], default="2.28")
    return Release(prefix, floor, libraries)
