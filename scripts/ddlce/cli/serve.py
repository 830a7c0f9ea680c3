"""`ddlce serve`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ddlce.cli.common import app, out
from ddlce.errors import InputError
from ddlce.settings import load_settings


@app.command()
def serve(
    port: Annotated[int, typer.Option(min=0, max=65535, help="TCP port; 0: any free one.")] = 8040,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    channel: Annotated[
        Path | None,
        typer.Option(help="Channel folder, instead of the tree's.", show_default=False),
    ] = None,
) -> None:
    """Serve the channel over HTTP: to conda, mamba, pixi, and to a browser.

    Ends on Ctrl-C. There is no login and no encryption: it listens on this machine only,
    unless --host says otherwise.

    Example:
        ddlce serve --port 8040 & conda install -c http://127.0.0.1:8040 ddl-ce
    """
    from ddlce.catalogue import list_missing, list_packages
    from ddlce.model.channel import load_channel
    from ddlce.serve.application import ChannelApp
    from ddlce.serve.pages import Pages
    from ddlce.serve.server import serve as run

    settings = load_settings()
    folder = channel or settings.channel
    if not (folder / "noarch" / "repodata.json").is_file():
        raise InputError(
            f"no channel at {folder}: it has no noarch/repodata.json",
            "build and index it with 'ddlce build' and 'ddlce index', or name another: --channel",
        )
    description = load_channel(settings.tree / "channel" / "channel.yaml")
    missing, listed = list_missing(settings), list_packages(settings)
    pages = Pages(settings.tree / "channel" / "pages", description, missing, listed)
    run(
        ChannelApp(folder.resolve(), description, pages),
        host,
        port,
        ready=lambda url: out.print(f"serving {folder} at {url}; Ctrl-C ends it"),
    )
