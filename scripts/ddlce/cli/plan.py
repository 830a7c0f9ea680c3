"""`ddlce plan`: what would be built, what is reused, and why."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from ddlce.cli.common import CudaOption, JsonOption, PlatformOption, SetOption, app, out, print_json
from ddlce.platforms import BUILD_PLATFORM
from ddlce.settings import load_settings


@app.command(epilog="Example: ddlce plan --explain ddl")
def plan(
    packages: Annotated[
        list[str] | None, typer.Argument(help="Recipes or packages; all by default.")
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Say which inputs changed since the last build.")
    ] = False,
    subdir: PlatformOption = BUILD_PLATFORM,
    cuda: CudaOption = "",
    extra: SetOption = "",
    json: JsonOption = False,
) -> None:
    """Show each recipe with its content digest: reuse, build and why, or absent and why."""
    from ddlce.plan import make_plan

    steps = make_plan(load_settings(), subdir, cuda, extra)
    if packages:
        steps = steps.restrict(packages)
    if json:
        absent = () if packages else steps.absent.items()
        print_json(
            [
                {
                    "recipe": step.name,
                    "digest": step.digest,
                    "subdir": step.subdir,
                    "action": "reuse" if step.reuse else "build",
                    "why": list(step.why),
                    "packages": [f"{o.subdir}/{o.filename}" for o in step.outputs],
                    "after": sorted(step.after),
                }
                for step in steps.steps.values()
            ]
            + [{"recipe": n, "action": "absent", "why": [why]} for n, why in absent]
        )
        return
    for step in steps.steps.values():
        if step.reuse and step.name != step.recipe.name:
            continue  # the other platform's, and already there
        action = "[dim]reuse[/]" if step.reuse else "[yellow]build[/]"
        out.print(f"{action}  {step.short}  {step.name}")
        if explain:
            for reason in step.why:
                out.print(f"         {reason}", style="dim", markup=False)
    for name, reason in () if packages else steps.absent.items():
        out.print(f"[dim]absent[/] {'':10}  {name}: {escape(reason)}")
    lost = f", {len(steps.absent)} absent" if steps.absent else ""
    out.print(f"{len(steps.steps)} recipes: {len(steps.to_build)} to build{lost}")
