"""`ddlce env gc`: remove old releases and unused packages."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer
from rich.markup import escape

from ddlce.cli.common import JsonOption, RootOption, err, out, print_json
from ddlce.cli.env._common import say_waiting
from ddlce.settings import load_settings


def gc(
    keep: Annotated[int, typer.Option("--keep", min=1, help="Releases to keep of each ENV.")] = 1,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    root: RootOption = None,
    json: JsonOption = False,
) -> None:
    """Remove old releases, unused cached packages and leftovers of killed runs.

    What other users own, and releases that a process of this machine runs from, are kept.
    """
    from ddlce.env.gc import collect
    from ddlce.env.layout import Layout
    from ddlce.modulefile.install import withdraw_modulefiles

    settings = load_settings(root)
    collected = collect(settings, keep=keep, dry_run=dry_run, on_wait=say_waiting)
    if not dry_run:
        layout = Layout(settings.root)
        # Those of releases that stay, too: an earlier run may have been killed before this.
        for env in {path.parent.name for path in (*collected.releases, *layout.releases())}:
            withdraw_modulefiles(layout, env, say_waiting)
    found = dataclasses.asdict(collected)
    if json:
        print_json({**found, "dry_run": dry_run})
        return
    verb = "would remove" if dry_run else "removed"
    for path in [*collected.releases, *collected.leftovers]:
        out.print(f"{verb} {escape(str(path))}")
    for kept in collected.kept:
        err.print(f"kept {escape(str(kept.path))}: {escape(kept.why)}")
    out.print(
        f"{verb} {len(collected.releases)} releases, {len(collected.packages)} cached packages"
    )
