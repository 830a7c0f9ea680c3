"""`ddlce report`: what was built for each platform, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ddlce.cli.common import JsonOption, app, out, print_json
from ddlce.files import write_atomic
from ddlce.settings import load_settings


@app.command(epilog="Example: ddlce report --out platforms.md")
def report(
    env: Annotated[str, typer.Argument(help="A manifest in envs/; its platforms are told.")] = (
        "ddl-ce"
    ),
    into: Annotated[
        Path | None, typer.Option("--out", help="Write the page here, not on the terminal.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Show packages, versions, sizes, build times and tests of all platforms, side by side."""
    from ddlce.model.manifest import load_manifest
    from ddlce.plan import make_plan
    from ddlce.report import make_side, to_json, to_markdown

    settings = load_settings()
    platforms = load_manifest(settings.tree / "envs" / f"{env}.yaml").platforms
    sides = [make_side(settings, make_plan(settings, name), env) for name in platforms]
    if json:
        print_json(to_json(sides))
    elif into:
        write_atomic(into, to_markdown(sides))
        out.print(f"{into}: {' and '.join(platforms)}", markup=False)
    else:
        typer.echo(to_markdown(sides), nl=False)
