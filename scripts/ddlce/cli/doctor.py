"""`ddlce doctor`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ddlce.cli.common import JsonOption, RootOption, app, err, out, print_json
from ddlce.errors import MachineError
from ddlce.settings import load_settings

if TYPE_CHECKING:
    from ddlce.doctor.report import Check

COLOURS = {"ok": "green", "missing": "bold red", "optional": "yellow"}


@app.command()
def doctor(
    root: RootOption = None,
    as_json: JsonOption = False,
    fix: Annotated[
        bool, typer.Option("--fix", help="Install what is missing (root or sudo).")
    ] = False,
) -> None:
    """Check the machine: programs, disk, memory, glibc, GPUs, MPI, module system.

    Says for each what it is needed for, and the one command that installs what is missing.
    Exit code 3 when something required is missing.

    Example:
        ddlce doctor --fix
    """
    import shlex
    from dataclasses import asdict

    from ddlce.doctor.fix import run_fix
    from ddlce.doctor.machine import check_machine
    from ddlce.doctor.packages import check_package, install_command, installer, read_list

    settings = load_settings(root)

    def examine() -> list[Check]:
        return [*map(check_package, read_list()), *check_machine(settings)]

    checks = examine()
    manager = installer()
    command = install_command(checks, manager) if manager else None
    if fix and manager and command and run_fix(manager, command):
        checks = examine()
        command = install_command(checks, manager)
    if as_json:
        shown = [{**asdict(check), "packages": dict(check.packages)} for check in checks]
        print_json({"checks": shown, "install": command, "installer": manager})
    else:
        _show(checks)
        if command:
            out.print(f"\nInstall what is not there: [bold]{shlex.join(command)}[/]")
    lacking = [check.name for check in checks if check.state == "missing"]
    if lacking:
        raise MachineError(
            f"this machine lacks what DDL-CE needs: {', '.join(lacking)}",
            "run 'ddlce doctor --fix', or ask who keeps this machine",
        )
    err.print("this machine has everything that DDL-CE needs")


def _show(checks: list[Check]) -> None:
    from rich.markup import escape
    from rich.table import Table

    table = Table("", "what", "found", "needed for", box=None, header_style="dim")
    for column in table.columns:
        column.overflow = "fold"
    for check in checks:
        state = f"[{COLOURS[check.state]}]{check.state}[/]"
        table.add_row(state, escape(check.name), escape(check.found), escape(check.why))
    out.print(table)
