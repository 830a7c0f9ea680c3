"""`ddlce smoke`: run an environment's own smoke suite."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from ddlce.cli.common import JsonOption, RootOption
from ddlce.settings import load_settings


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog="Example: ddlce smoke ddl-ce --ranks 1,2 --report smoke-report. "
        "Exit status: 0 all passed; 1 something failed; 2 bad input; 3 the suite is not installed, "
        "or the report cannot be written; 130 interrupted."
    )(smoke)


def smoke(
    env: Annotated[str, typer.Argument(help="An environment's name, or any prefix.")] = "ddl-ce",
    report: Annotated[
        Path | None,
        typer.Option("--report", help="Write report.html, report.json and junit.xml here."),
    ] = None,
    ranks: Annotated[str, typer.Option(help="Rank counts to run on.")] = "1,2,4",
    parts: Annotated[
        str | None,
        typer.Option(help="Only some of: versions,collectives,training,benchmark."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Less of all: does it work at all?")
    ] = False,
    timeout: Annotated[float, typer.Option(help="Seconds that each run may take.")] = 300.0,
    platform: Annotated[
        str | None,
        typer.Option("--platform", help="Another platform's release of ENV, emulated."),
    ] = None,
    json: JsonOption = False,
    root: RootOption = None,
) -> None:
    """Test an environment: imports, collectives, distributed training, benchmark."""
    from ddlce.smoke import smoke_command

    arguments = ["--ranks", ranks, "--timeout", str(timeout)]
    arguments += ["--parts", parts] if parts else []
    arguments += ["--report", str(report)] if report else []
    arguments += ["--quick"] * quick + ["--json"] * json
    command = smoke_command(load_settings(root), env, arguments, os.environ, platform)
    # The suite takes our place: signals, output and exit status are its own.
    sys.stdout.flush()
    os.execve(command.argv[0], command.argv, command.environ)
