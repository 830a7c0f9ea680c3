"""`ddlce env check`: what an overlay shadows of its release."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from ddlce.cli.common import JsonOption, RootOption, out, print_json
from ddlce.settings import load_settings

if TYPE_CHECKING:
    from ddlce.overlay.check import Checked


def check(
    name: Annotated[str, typer.Argument(help="An overlay's name or path.")],
    release: Annotated[
        str | None,
        typer.Option("--release", help="Compare it with another release: ENV/RELEASE or a path."),
    ] = None,
    root: RootOption = None,
    json: JsonOption = False,
) -> None:
    """Name what an overlay shadows of its release, and what is broken; exit 1 if there is any."""
    from ddlce.env.layout import Layout, find_env
    from ddlce.overlay.check import check as check_overlay
    from ddlce.overlay.model import find_overlay

    settings = load_settings(root)
    prefix, overlay = find_overlay(name)
    against = find_env(settings, release) if release else None
    checked = check_overlay(Layout(settings.root), prefix, overlay, against)
    if json:
        print_json({**dataclasses.asdict(checked), "ok": checked.ok})
    else:
        _show(checked)
    if not checked.ok:
        raise typer.Exit(1)


def _show(checked: Checked) -> None:
    """One line for each thing."""
    for problem in checked.problems:
        out.print(f"problem   {problem}", markup=False)
    for each in checked.shadowed:
        what = each.name if each.kind == "package" else f"{each.kind} {each.name}"
        out.print(
            f"shadowed  {what}: {each.version} hides {each.package} {each.release_version} of the "
            f"release ({each.where})",
            markup=False,
        )
    for line in checked.broken:
        out.print(f"broken    {line}", markup=False)
    for line in checked.notes:
        out.print(f"note      {line}", markup=False)
    verdict = "[green]ok[/]" if checked.ok else "[bold red]not ok[/]"
    on = f" on {checked.against}" if checked.against else ""
    out.print(f"{escape(str(checked.prefix))}: {checked.packages} packages{escape(on)}: {verdict}")
