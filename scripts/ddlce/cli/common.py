"""What every command shares: the program, consoles, JSON output, the --root option."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

#: The program: each module of this package adds its command.
app = typer.Typer(
    name="ddlce",
    help="Build, serve, lock, install and test the DDL-CE distribution.",
    epilog="Exit codes: 0 done; 1 the work failed (build, test, verification); 2 bad input "
    "(recipe, manifest, flag); 3 the machine (missing program, disk, permission); 4 a source "
    "(network, checksum); 130 interrupted.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)

#: Results go to standard output, progress and errors to standard error.
out = Console(emoji=False, highlight=False, soft_wrap=True)
err = Console(stderr=True, emoji=False, highlight=False, soft_wrap=True)

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
#: `--subdir` and `--into` are what these options were called first; scripts may have them.
PlatformOption = Annotated[
    str, typer.Option("--platform", "--subdir", help="The platform that the packages are for.")
]
OUT = ("--out", "--into")
CudaOption = Annotated[
    str, typer.Option("--cuda", help="The packages for this CUDA too, e.g. 13.0.")
]
SetOption = Annotated[str, typer.Option("--set", help="The packages of this set too, e.g. full.")]
LockOption = Annotated[
    Path | None, typer.Option("--lock", help="Another lock file than envs/locks/ENV.…")
]
ChannelFolderOption = Annotated[
    Path | None, typer.Option("--channel", help="The folder of our channel.", show_default=False)
]
RootOption = Annotated[
    Path | None,
    typer.Option("--root", help="Where environments live [env DDLCE_ROOT].", show_default=False),
]


def print_json(data: Any) -> None:
    """Print plain, sorted JSON on standard output."""
    typer.echo(json.dumps(data, indent=2, sort_keys=True, default=str))
