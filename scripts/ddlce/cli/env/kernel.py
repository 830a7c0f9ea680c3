"""`ddlce env kernel`: an environment as a kernel in Jupyter."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from ddlce.cli.common import JsonOption, RootOption, out, print_json
from ddlce.errors import InputError
from ddlce.settings import load_settings

if TYPE_CHECKING:
    from ddlce.settings import Settings


def kernel(
    name: Annotated[
        str | None, typer.Argument(help="The kernel's name; the environment's otherwise.")
    ] = None,
    release: Annotated[
        str | None, typer.Option("--release", help="ENV, ENV/RELEASE or a path.")
    ] = None,
    overlay: Annotated[
        str | None, typer.Option("--overlay", help="An overlay's name or path.")
    ] = None,
    clone: Annotated[str | None, typer.Option("--clone", help="A clone's name or path.")] = None,
    prefix: Annotated[
        Path | None,
        typer.Option("--prefix", help="Write below PREFIX/share/jupyter, not to the user's folder"),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Take the place of a kernel for something else.")
    ] = False,
    root: RootOption = None,
    json: JsonOption = False,
) -> None:
    """Make an environment a kernel in Jupyter, with all that its module sets.

    The active environment, unless an option names one. It must have the package ipykernel.
    """
    from ddlce.overlay.kernel import describe, kernels_folder, write_kernel

    chosen = _choose(load_settings(root), release, overlay, clone)
    environment = describe(chosen)
    folder = write_kernel(environment, name, kernels_folder(prefix), force=force)
    if json:
        print_json({"kernel": folder.name, "folder": folder, "prefix": environment.prefix})
        return
    out.print(f"{escape(str(folder))}: {escape(environment.title)}")
    out.print(f'use it:  choose "{escape(environment.title)}" in Jupyter')


def _choose(
    settings: Settings, release: str | None, overlay: str | None, clone: str | None
) -> Path:
    """The environment that is meant."""
    from ddlce.env.layout import default_source, find_env
    from ddlce.overlay.model import find_overlay, read_overlay

    options = {"--release": release, "--overlay": overlay, "--clone": clone}
    given = {option: value for option, value in options.items() if value is not None}
    if len(given) > 1:
        raise InputError(f"{' and '.join(given)} exclude each other", "name one environment")
    if overlay is not None:
        return find_overlay(overlay)[0]
    named = release or clone
    if named is not None:
        return find_env(settings, named)
    active = os.environ.get("VIRTUAL_ENV")
    if active and read_overlay(Path(active)):
        return Path(active)
    return default_source(settings, "--release, --overlay or --clone")
