"""`ddlce debug`: a shell in the build folder of a package."""

from __future__ import annotations

from typing import Annotated

import typer

from ddlce.cli.common import CudaOption, PlatformOption, SetOption, app, err
from ddlce.platforms import BUILD_PLATFORM
from ddlce.settings import load_settings


@app.command(epilog="Example: ddlce debug openssl   (then, inside: bash -x conda_build.sh)")
def debug(
    package: Annotated[str, typer.Argument(help="The recipe or package.")],
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Prepare the folder anew, before the script's start.")
    ] = False,
    command: Annotated[
        str | None, typer.Option("--command", "-c", help="Run this there instead of a shell.")
    ] = None,
    subdir: PlatformOption = BUILD_PLATFORM,
    cuda: CudaOption = "",
    extra: SetOption = "",
) -> None:
    """Open a shell where the last build of PACKAGE failed, with its environment set up."""
    from ddlce.builder.debug import enter, prepare
    from ddlce.runner import runner_of

    settings = load_settings()
    folder = prepare(
        *(settings, package, fresh),
        log=lambda line: err.print(line, markup=False),
        subdir=subdir,
        cuda=cuda,
        extra=extra,
    )
    err.print(f"debug: {folder}")
    raise typer.Exit(enter(folder, command, runner_of(settings, subdir)))
