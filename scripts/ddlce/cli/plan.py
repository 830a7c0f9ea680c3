"""`ddlce plan`: what would be built, what is reused, and why."""

from __future__ import annotations

from typing import Annotated

import typer

from ddlce.cli.common import JsonOption, out, print_json
from ddlce.settings import load_settings


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog="Example: ddlce plan --explain ddl")(plan)


def plan(
    packages: Annotated[
        list[str] | None, typer.Argument(help="Recipes or packages; all by default.")
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Say which inputs changed since the last build.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Show each recipe with its content digest: reuse, or build and why."""
    from ddlce.plan import make_plan

    steps = make_plan(load_settings())
    if packages:
        steps = steps.restrict(packages)
    if json:
        print_json(
            [
                {
                    "recipe": step.name,
                    "digest": step.digest,
                    "action": "reuse" if step.reuse else "build",
                    "why": list(step.why),
                    "packages": [f"{o.subdir}/{o.filename}" for o in step.outputs],
                    "after": sorted(step.after),
                }
                for step in steps.steps.values()
            ]
        )
        return
    for step in steps.steps.values():
        action = "[dim]reuse[/]" if step.reuse else "[yellow]build[/]"
        out.print(f"{action}  {step.short}  {step.name}")
        if explain:
            for reason in step.why:
                out.print(f"         {reason}", style="dim", markup=False)
    out.print(f"{len(steps.steps)} recipes: {len(steps.to_build)} to build")
