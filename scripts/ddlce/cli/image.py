"""`ddlce image`: a release as a container image."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from ddlce.cli.common import JsonOption, RootOption, app, out, print_json

image = typer.Typer(
    help="Make container images of releases.",
    no_args_is_help=True,
    epilog="Example: ddlce image oci ddl-ce --base debian:12 --out image",
)
app.add_typer(image, name="image")


@image.command()
def oci(
    name: Annotated[
        str | None,
        typer.Argument(help="A release or its prefix; the active or default one otherwise."),
    ] = None,
    base: Annotated[
        str, typer.Option("--base", help="The OCI layout of a system's image: DIR or DIR:TAG.")
    ] = "base",
    folder: Annotated[Path, typer.Option("--out", help="The new OCI layout, a folder.")] = Path(
        "image"
    ),
    root: RootOption = None,
    json: JsonOption = False,
) -> None:
    """Write a release's container image as an OCI layout, for podman, docker and Apptainer.

    The layers of the base image, which has glibc and a shell, are its lowest. The variables are
    those that loading the module sets, so `ddlrun` works at once.

    Example: skopeo copy docker://docker.io/library/debian:12 oci:debian:12
    && ddlce image oci ddl-ce --base debian:12 --out image
    """
    from ddlce.cli.env._common import progress_bar
    from ddlce.env.layout import default_source, find_env
    from ddlce.oci.image import make_oci
    from ddlce.settings import load_settings

    settings = load_settings(root)
    prefix = find_env(settings, name) if name else default_source(settings, "the name")
    with progress_bar("packing") as progress:
        made = make_oci(prefix, base, folder.absolute(), progress)
    if json:
        print_json(dataclasses.asdict(made))
        return
    for layer in made.layers:
        out.print(f"{layer.name}: {layer.size / 1e6:.0f} MB, sha256:{layer.digest}", markup=False)
    out.print(f"{made.folder}:{made.tag} is {made.digest}, with {made.prefix}", markup=False)
    out.print(f"run it:  podman run --rm oci:{made.folder}:{made.tag} ddlrun --help", markup=False)
