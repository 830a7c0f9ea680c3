"""`ddlce module`: write the modulefiles of an environment."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from ddlce.cli.common import OUT, JsonOption, RootOption, app, out, print_json
from ddlce.cli.env._common import say_waiting


@app.command()
def module(
    env: Annotated[
        str, typer.Argument(metavar="[PREFIX|ENV]", help="The environment: its name or its path.")
    ] = "ddl-ce",
    root: RootOption = None,
    into: Annotated[
        Path | None,
        typer.Option(*OUT, help="Write here.", show_default="<root>/modulefiles"),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--name", help="The module's name.", show_default="the environment's"),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Write modulefiles for Lmod (Lua) and Environment Modules (Tcl).

    The environment's activation is run now, so that loading the module runs nothing: no shell,
    no Python. The module's default version is the environment's current release. Modulefiles of
    releases that `ddlce env gc` has removed are removed too.

    Example: ddlce module ddl-ce && module use ~/.local/share/ddl-ce/modulefiles/lua
    """
    from ddlce.env.layout import Layout, find_env
    from ddlce.modulefile.install import write_modulefiles
    from ddlce.settings import load_settings

    settings = load_settings(root)
    prefix = find_env(settings, env)
    written = write_modulefiles(
        prefix, Layout(settings.root), into and into.absolute(), name, say_waiting
    )
    if json:
        print_json(
            {
                "name": written.name,
                "version": written.version,
                "default": written.default,
                "prefix": written.prefix,
                "modulefiles": written.files,
                "use": written.trees,
                "removed": written.removed,
            }
        )
        return
    out.print(f"{written.name}/{written.version} for {written.prefix}")
    for system, path in written.files.items():
        out.print(f"  {system}: {path}", markup=False)
        out.print(f"    module use {quote(str(written.trees[system]))}", markup=False)
    for path in written.removed:
        out.print(f"  removed {path}: its release is gone", markup=False)
    out.print(f"module load {written.name} loads {written.name}/{written.default}", markup=False)
