"""The `ddlce` program: its commands, and the one place where errors become exit codes."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from typing import Annotated, Any, NoReturn

import typer
from rich.markup import escape
from typer.main import get_command

from ddlce import __version__
from ddlce.cli.common import app, err
from ddlce.errors import DdlceError, print_error
from ddlce.files import explain_os_error
from ddlce.programs import absolute_only
from ddlce.settings import own_release

INTERRUPTED = "interrupted; run the same command again to go on"

#: In the order of the way of the data. Each module adds its command to the program.
COMMANDS = (
    "doctor",
    "lint",
    "fetch",
    "sources",
    "outdated",
    "plan",
    "build",
    "cache",
    "debug",
    "emulate",
    "index",
    "serve",
    "lock",
    "sbom",
    "advisories",
    "bundle",
    "publish",
    "image",
    "keys",
    "env",
    "audit",
    "module",
    "smoke",
    "report",
    "catalogue",
    "release",
    "all",
)


def _show_version(value: bool) -> None:
    if value:
        release = own_release()
        typer.echo(f"ddlce {__version__}" + (f" of {release}" if release else ""))
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Version, and the release."
        ),
    ] = False,
) -> None:
    """Build, serve, lock, install and test the DDL-CE distribution."""


for _name in COMMANDS:
    importlib.import_module(f"ddlce.cli.{_name}")
# A module that another one needs has come before its turn.
app.registered_groups.sort(key=lambda group: COMMANDS.index(str(group.name)))


def program() -> Any:
    """The whole command; its help texts are shown as they are written.

    Typer takes [words in brackets] for rich's markup and drops those that it does not know.
    """
    command = get_command(app)
    _escape_help(command)
    return command


def _escape_help(command: Any) -> None:
    for part in (command, *command.params):
        for name in ("help", "short_help", "epilog"):
            if text := getattr(part, name, None):
                setattr(part, name, escape(text))
    for inner in getattr(command, "commands", {}).values():
        _escape_help(inner)


def main() -> None:
    """Run the CLI; designed errors, and the system's, become one message and an exit code."""
    if "PATH" in os.environ:
        os.environ["PATH"] = absolute_only(os.environ["PATH"])
    os.umask(0o022)  # whatever the user's is: what is made here is for others to read, not to write
    run_designed(program())


def end_process(work: Callable[[], object]) -> NoReturn:
    """Do a program's work, as the last thing that this process does.

    Where rattler has run, the interpreter is not shut down: rattler's threads may abort in it. A
    command that had made an index ended so, with its work done, in one run of eighty.
    """
    status: object = 0
    try:
        work()
    except SystemExit as end:
        status = end.code or 0
    if "rattler" not in sys.modules or not isinstance(status, int):
        raise SystemExit(status)
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        status = 141
    except OSError as error:
        if status == 0:  # else an error has been told, perhaps this one
            told = explain_os_error(error)
            print_error(told)
            status = told.exit_code
    os._exit(status)


def run_designed(work: Callable[[], object]) -> None:
    """Run a program's work; every error becomes one message and an exit status."""
    try:
        work()
    except DdlceError as error:
        _end(error)
    except SystemExit as end:
        if end.code == 130:  # what typer makes of Ctrl-C
            err.print(INTERRUPTED)
        raise
    except KeyboardInterrupt:
        err.print(INTERRUPTED)
        sys.exit(130)
    except BrokenPipeError:
        os._exit(141)  # the reader (`| head`) has gone; nothing more to say
    except OSError as error:
        _end(explain_os_error(error))


def _end(error: DdlceError) -> NoReturn:
    print_error(error)
    sys.exit(error.exit_code)
