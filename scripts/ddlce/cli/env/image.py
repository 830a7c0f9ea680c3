"""`ddlce env image`: one compressed file of a release, for the nodes' own disks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from ddlce.cli.common import JsonOption, RootOption, out, print_json
from ddlce.cli.env._common import progress_bar, say_waiting
from ddlce.settings import load_settings


def image(
    name: Annotated[
        str | None,
        typer.Argument(help="A release or its prefix; the active or default one otherwise."),
    ] = None,
    place: Annotated[
        Path | None,
        typer.Option(
            "--for",
            help="The folder on the nodes' own disks [env DDLCE_STAGE_PLACE; /tmp/ddl-ce-UID].",
            show_default=False,
        ),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Where the image goes; beside the environments or in your cache otherwise.",
            show_default=False,
        ),
    ] = None,
    root: RootOption = None,
    json: JsonOption = False,
) -> None:
    """Make one compressed file of a release, for `ddlrun -stage`."""
    from ddlce.env.image import make_image, node_place
    from ddlce.env.layout import default_source, find_env

    settings = load_settings(root)
    prefix = find_env(settings, name) if name else default_source(settings)
    with progress_bar("packing") as progress:
        imaged = make_image(
            settings, prefix, place or node_place(), folder, progress=progress, on_wait=say_waiting
        )
    if json:
        print_json({**imaged.said.model_dump(), "path": str(imaged.image), "made": imaged.made})
        return
    what = "made" if imaged.made else "was there"
    out.print(
        f"{escape(str(imaged.image))} {what}: {imaged.said.files} files, "
        f"{imaged.said.size / 1e6:.0f} MB, {imaged.said.unpacked / 1e6:.0f} MB on a node's disk"
    )
    out.print(f"use it:  ddlrun -stage={escape(str(imaged.image))} python train.py")
