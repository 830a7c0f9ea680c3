"""`ddlce env overlay`: the user's own Python packages on top of a release."""

from __future__ import annotations

import dataclasses
import shlex
from typing import Annotated

import typer
from rich.markup import escape

from ddlce.cli.common import JsonOption, RootOption, out, print_json
from ddlce.cli.env._common import say_waiting
from ddlce.settings import load_settings


def overlay(
    name: Annotated[str, typer.Argument(help="The new overlay's name, or a path.")],
    release: Annotated[
        str | None,
        typer.Option("--release", help="ENV, ENV/RELEASE or a path; the active one otherwise."),
    ] = None,
    root: RootOption = None,
    json: JsonOption = False,
) -> None:
    """Make a Python venv on top of a release, in about a second.

    `pip install` in it adds packages, and keeps to the versions that the release has.
    """
    from ddlce.env.layout import default_source, find_env
    from ddlce.overlay.create import make_overlay

    settings = load_settings(root)
    prefix = find_env(settings, release) if release else default_source(settings, "--release")
    done = make_overlay(settings, name, prefix, say_waiting)
    if json:
        print_json(dataclasses.asdict(done))
        return
    out.print(
        f"{escape(str(done.prefix))}: on {escape(str(done.release))}, "
        f"pip keeps to its {done.pins} packages"
    )
    activate = shlex.quote(str(done.prefix / "bin" / "activate"))
    out.print(f"use it:  source {activate}", markup=False)
