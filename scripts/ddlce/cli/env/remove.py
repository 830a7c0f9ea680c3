"""`ddlce env remove`: remove a clone, an overlay or an old release."""

from __future__ import annotations

from typing import Annotated

import typer

from ddlce.cli.common import JsonOption, RootOption, out, print_json
from ddlce.cli.env._common import say_waiting
from ddlce.settings import load_settings


def remove(
    name: Annotated[str, typer.Argument(help="A clone, an overlay, or ENV/RELEASE-DIGEST.")],
    root: RootOption = None,
    json: JsonOption = False,
) -> None:
    """Remove a clone, an overlay or an old release."""
    from ddlce.env.layout import Layout
    from ddlce.env.remove import remove as remove_env
    from ddlce.modulefile.install import withdraw_modulefiles
    from ddlce.overlay.create import remove_overlay

    settings = load_settings(root)
    prefix = remove_overlay(settings, name, say_waiting) or remove_env(settings, name, say_waiting)
    withdrawn = []
    if len(prefix.parts) > 3 and (layout := Layout(prefix.parents[2])).envs == prefix.parents[1]:
        withdrawn = withdraw_modulefiles(layout, prefix.parent.name, say_waiting)
    if json:
        print_json({"removed": str(prefix)})
    else:
        for path in (prefix, *withdrawn):
            out.print(f"removed {path}", markup=False)
