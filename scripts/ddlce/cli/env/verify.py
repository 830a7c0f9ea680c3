"""`ddlce env verify`: check every file of an environment."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from ddlce.cli.common import JsonOption, RootOption, err, out, print_json
from ddlce.settings import load_settings

if TYPE_CHECKING:
    from ddlce.env.verify import Verified


def verify(
    name: Annotated[
        str | None, typer.Argument(help="ENV, ENV/RELEASE, a clone's name, or a path.")
    ] = None,
    lock: Annotated[
        Path | None,
        typer.Option("--lock", help="A lock that you trust, instead of the release's own copy."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Believe the environment's records; read no archive.")
    ] = False,
    root: RootOption = None,
    json: JsonOption = False,
) -> None:
    """Check every file of an environment; exit 1 when one is wrong.

    A release is compared with the archives that its lock names, a clone with its own records.
    """
    from ddlce.env.layout import default_source, find_env
    from ddlce.env.verify import verify as verify_prefix
    from ddlce.model.envlock import EnvLock

    settings = load_settings(root)
    prefix = find_env(settings, name) if name else default_source(settings)
    trusted = EnvLock.load(lock) if lock else None
    # A tree that is refused is an error, not a reason to look less closely.
    with_tree = settings if settings.repo or settings.refused else None
    report = verify_prefix(prefix, with_tree, lock=trusted, quick=quick)
    if report.kind == "release" and with_tree is None:
        err.print("note: .condarc is not compared, as its template is in the source tree")
    if json:
        print_json({**dataclasses.asdict(report), "ok": report.ok})
    else:
        _show_report(report)
    if not report.ok:
        raise typer.Exit(1)


def _show_report(report: Verified) -> None:
    """Name every file that is wrong, one a line."""
    for problem in report.problems:
        out.print(f"problem   {problem}", markup=False)
    for label in ("modified", "missing", "writable"):
        for name in getattr(report, label):
            out.print(f"{label:<9} {name}", markup=False)
    for text in report.attributes:
        out.print(f"attribute {text}", markup=False)
    if report.kind == "release":
        for name in report.extra:
            out.print(f"extra     {name}", markup=False)
    elif report.extra:
        out.print(f"{len(report.extra)} files of the clone's own, from no package")
    verdict = "[green]ok[/]" if report.ok else "[bold red]not ok[/]"
    out.print(f"{escape(str(report.prefix))}: {report.files} files checked: {verdict}")
