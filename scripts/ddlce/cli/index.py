"""`ddlce index`: publish the built packages as a channel."""

from __future__ import annotations

import typer

from ddlce.cli.common import JsonOption, out, print_json
from ddlce.settings import Settings, load_settings


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog="Example: ddlce index")(index)


def index(json: JsonOption = False) -> None:
    """Make the channel hold the plan's packages: repodata.json, .zst and shards."""
    from ddlce.channel import update_channel

    settings = load_settings()
    total, added = update_channel(settings)
    if json:
        print_json({"channel": str(settings.channel), "packages": total, "added": added})
    else:
        print_index(settings, total, added)


def print_index(settings: Settings, total: int, added: list[str]) -> None:
    """Say what the channel holds now."""
    out.print(f"index: {total} packages in {settings.channel}, {len(added)} added")
