"""`ddlce emulate`: run a command in which programs of another platform work."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from ddlce.cli.common import app
from ddlce.settings import load_settings


@app.command(
    epilog="Example: ddlce emulate /opt/power-env/bin/python -c 'import torch'. "
    "Exit status: the command's own.",
    # What follows COMMAND belongs to it, options too.
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
def emulate(
    command: Annotated[
        list[str], typer.Argument(metavar="COMMAND...", help="A program and its arguments.")
    ],
    platform: Annotated[str, typer.Option(help="Whose programs shall work.")] = "linux-ppc64le",
) -> None:
    """Run COMMAND on this machine with programs of another platform emulated (qemu)."""
    from ddlce.emulate import emulated, ensure_sysroot
    from ddlce.emulate.command import find_emulator

    find_emulator(platform)  # before anything is downloaded for it
    argv = emulated(command, platform, ensure_sysroot(load_settings(), platform))
    sys.stdout.flush()
    os.execv(argv[0], argv)
