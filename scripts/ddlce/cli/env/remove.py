"""`ddlce env remove`: remove a clone, an overlay or an old release."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from ddlce.cli.common import JsonOption, RootOption, out, print_json
from ddlce.cli.env._common import say_waiting
from ddlce.settings import load_settings


def remove(
    name: Annotated[str, typer.Argument(help="A clone, an overlay, or ENV/RELEASE-DIGEST.")],
    root: RootOption = None,
    json: JsonOption = False,
) -> None:
    """Remove a clone, an overlay or an old release."""
    from ddlce.env.remove import remove as remove_env
    from ddlce.overlay.create import remove_overlay

    settings = load_settings(root)
    prefix = remove_overlay(settings, name, say_waiting) or remove_env(settings, name, say_waiting)
    if json:
        print_json({"removed": str(prefix)})
    else:
        out.print(f"removed {escape(str(prefix))}")
