"""`ddlce env clone`: a writable copy of an environment."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer
from rich.markup import escape

from ddlce.cli.common import JsonOption, RootOption, out, print_json
from ddlce.cli.env._common import progress_bar, say_waiting
from ddlce.cli.signed import require_signed
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
    from ddlce.env.layout import LOCK_COPY, default_source, find_env
    from ddlce.model.envlock import EnvLock
    from ddlce.trust.names import lock_name

    settings = load_settings(root)
    prefix = find_env(settings, source) if source else default_source(settings)
    lock = EnvLock.load(prefix / LOCK_COPY)
    require_signed(settings, {lock_name(lock): lock.digest})
    with progress_bar("cloning") as progress:
        cloned = clone_env(settings, name, prefix, progress=progress, on_wait=say_waiting)
    if json:
        print_json(dataclasses.asdict(cloned))
        return
    out.print(
        f"{escape(str(cloned.prefix))}: {cloned.packages} packages of {escape(str(cloned.source))} "
        f"({cloned.linked} files linked, {cloned.copied} its own)"
    )
    if cloned.reflinked:
        out.print(f"{cloned.reflinked} of its own share their data with the source until changed")
    if cloned.why_copied:
        out.print(f"all files are copies, which takes time and space: {escape(cloned.why_copied)}")
    out.print(f"use it:  conda activate {escape(str(cloned.prefix))}")
