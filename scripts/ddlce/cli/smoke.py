"""`ddlce smoke`: run an environment's own smoke suite."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from ddlce.cli.common import JsonOption, RootOption, app
from ddlce.settings import load_settings

RanksOption = Annotated[
    str | None,
    typer.Option(
        help="Rank counts to run on. [default: 1,2,4; over several hosts 1 and one on each]"
    ),
]
HostsOption = Annotated[
    str | None, typer.Option("--hosts", "-H", help="Over these hosts, as ddlrun's -H.")
]
TimeoutOption = Annotated[
    float | None, typer.Option(help="Seconds that each run may take. [default: the suite's]")
]
PartsOption = Annotated[
    str | None,
    typer.Option(help="Only some of: links,versions,collectives,training,benchmark,research."),
]
LongOption = Annotated[
    bool, typer.Option("--long", help="All parts, packages of research too: some minutes more.")
]


@app.command(
    epilog="Example: ddlce smoke ddl-ce --ranks 1,2 --report smoke-report. "
    "Exit status: 0 all passed; 1 something failed; 2 bad input; 3 the suite is not installed, "
    "or the report cannot be written; 130 interrupted."
)
def smoke(
    env: Annotated[str, typer.Argument(help="An environment's name, or any prefix.")] = "ddl-ce",
    report: Annotated[
        Path | None,
        typer.Option("--report", help="Write report.html, report.json and junit.xml here."),
    ] = None,
    ranks: RanksOption = None,
    hosts: HostsOption = None,
    hostfile: Annotated[
        Path | None, typer.Option("--hostfile", help="Over the hosts in this file.")
    ] = None,
    local: Annotated[
        bool, typer.Option("--local", help="On this host, in a batch job too.")
    ] = False,
    shared: Annotated[
        Path | None,
        typer.Option("--shared", help="A folder that all hosts have. [default: the current one]"),
    ] = None,
    parts: PartsOption = None,
    long: LongOption = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Less of all: does it work at all?")
    ] = False,
    timeout: TimeoutOption = None,
    reference: Annotated[
        Path | None,
        typer.Option(help="report.json of a good run over the same hosts: a slower link fails."),
    ] = None,
    node: Annotated[
        bool,
        typer.Option("--node", help="This host's verdict alone, as JSON, in about 20 seconds."),
    ] = False,
    platform: Annotated[
        str | None,
        typer.Option("--platform", help="Another platform's release of ENV, emulated."),
    ] = None,
    json: JsonOption = False,
    root: RootOption = None,
) -> None:
    """Test an environment: imports, collectives, distributed training, benchmark."""
    from ddlce.smoke import smoke_command

    values = {
        "--ranks": ranks,
        "--parts": parts,
        "--report": report,
        "--hosts": hosts,
        "--hostfile": hostfile,
        "--shared": shared,
        "--reference": reference,
        "--timeout": timeout,
    }
    arguments = [word for name, value in values.items() if value for word in (name, str(value))]
    flags = {"quick": quick, "local": local, "json": json, "node": node, "long": long}
    arguments += [f"--{name}" for name, chosen in flags.items() if chosen]
    command = smoke_command(load_settings(root), env, arguments, os.environ, platform)
    # The suite takes our place: signals, output and exit status are its own.
    sys.stdout.flush()
    os.execve(command.argv[0], command.argv, command.environ)
