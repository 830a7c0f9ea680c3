"""`ddlce env default`: make a release the one that users get."""

from __future__ import annotations

from typing import Annotated

import typer

from ddlce.cli.common import JsonOption, RootOption, out, print_json
from ddlce.cli.env._common import say_waiting
from ddlce.settings import load_settings


def default(
    release: Annotated[str, typer.Argument(help="ENV/RELEASE-DIGEST, or its path.")],
    root: RootOption = None,
    json: JsonOption = False,
) -> None:
    """Make a release the default one, with its modulefiles: to offer it, or to go back.

    Nothing is installed, and running jobs keep the release that they have. A candidate is one no
    more.
    """
    from ddlce.bundle.install import index_again
    from ddlce.env.default import layout_of, make_default
    from ddlce.env.layout import find_env
    from ddlce.modulefile.content import read_content
    from ddlce.modulefile.install import write_modulefiles

    settings = load_settings(root)
    prefix = find_env(settings, release)
    layout = layout_of(prefix)
    read_content(prefix)  # an activation that no modulefile can do is told before the switch
    done = make_default(prefix, say_waiting)
    module = write_modulefiles(prefix, layout, on_wait=say_waiting)
    index_again(layout, say_waiting)
    if json:
        print_json({"prefix": prefix, "before": done.before, "module": module.default})
        return
    env = prefix.parent.name
    out.print(f"{prefix} is the default release of {env}", markup=False)
    out.print(f"module load {module.name} loads {module.name}/{module.default}", markup=False)
    if done.before and done.before != prefix:
        out.print(f"to go back: ddlce env default {env}/{done.before.name}", markup=False)
