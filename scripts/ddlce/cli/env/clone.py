"""`ddlce env clone`: a writable copy of an environment."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer
from rich.markup import escape

from ddlce.cli.common import JsonOption, RootOption, out, print_json
from ddlce.cli.env._common import progress_bar, say_waiting
from ddlce.settings import load_settings


def clone(
    name: Annotated[str, typer.Argument(help="The new environment's name, or a path.")],
    source: Annotated[
        str | None,
        typer.Option("--from", help="What to copy; the active or default release otherwise."),
    ] = None,
    root: RootOption = None,
    json: JsonOption = False,
) -> None:
    """Make a writable copy of an environment, in seconds."""
    from ddlce.env.clone import clone as clone_env
    from ddlce.env.layout import default_source, find_env

    settings = load_settings(root)
    prefix = find_env(settings, source) if source else default_source(settings)
    with progress_bar("cloning") as progress:
        done = clone_env(settings, name, prefix, progress=progress, on_wait=say_waiting)
    if json:
        print_json(dataclasses.asdict(done))
        return
    out.print(
        f"{escape(str(done.prefix))}: {done.packages} packages of {escape(str(done.source))} "
        f"({done.linked} files linked, {done.copied} its own)"
    )
    if done.reflinked:
        out.print(f"{done.reflinked} of its own share their data with the source until changed")
    if done.why_copied:
        out.print(f"all files are copies, which takes time and space: {escape(done.why_copied)}")
    out.print(f"use it:  conda activate {escape(str(done.prefix))}")
