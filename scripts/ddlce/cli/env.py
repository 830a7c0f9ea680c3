"""`ddlce env`: create, list, verify, clone, change and remove environments."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from ddlce.cli.common import JsonOption, RootOption, err, out, print_json
from ddlce.cli.lock import ChannelOption
from ddlce.errors import InputError
from ddlce.settings import Settings, load_settings

if TYPE_CHECKING:
    from ddlce.engine.worker import Progress
    from ddlce.env.verify import Report

OfflineOption = Annotated[
    bool, typer.Option("--offline", help="Use only caches and folders, never the network.")
]


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(
        no_args_is_help=True,
        help="Install releases, clone them, check and remove them.",
        epilog="Example: ddlce env create && ddlce env clone mine",
    )
    group.command(epilog="Example: ddlce env create ddl-ce --root /opt/ddl-ce")(create)
    group.command("list", epilog="Example: ddlce env list --json")(list_envs)
    group.command(epilog="Example: ddlce env verify ddl-ce")(verify)
    group.command(epilog="Example: ddlce env clone mine")(clone)
    group.command(epilog="Example: ddlce env install mine 'numpy >=2'")(install)
    group.command(epilog="Example: ddlce env remove mine")(remove)
    group.command(epilog="Example: ddlce env gc --keep 2 --dry-run")(gc)
    app.add_typer(group, name="env")


def create(
    env: Annotated[str, typer.Argument(help="An environment that is locked.")] = "ddl-ce",
    lock: Annotated[
        Path | None, typer.Option("--lock", help="Another lock file than envs/locks/ENV.…")
    ] = None,
    root: RootOption = None,
    channel: ChannelOption = None,
    offline: OfflineOption = False,
    platform: Annotated[
        str | None,
        typer.Option("--platform", help="Install another platform's lock; run it emulated."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Install a lock as an immutable release, and make it the default one."""
    from ddlce.env.create import create as create_release
    from ddlce.lock import channel_address, lock_path
    from ddlce.model.envlock import EnvLock
    from ddlce.place import place_of
    from ddlce.platforms import this_platform

    settings = load_settings(root)
    wanted = platform or this_platform()
    locked = EnvLock.load(lock or lock_path(settings, env, wanted))
    if platform not in (None, locked.platform):
        raise InputError(
            f"{lock} is for {locked.platform}, not for {platform}",
            f"leave --lock out, or say --platform {locked.platform}",
        )
    if not lock:
        _check_current(settings, locked)
    address = channel_address(channel or settings.channel)
    runner = None
    if wanted != this_platform():
        # Made ready when the first program is run: a release that exists needs no emulator.
        runner = lambda command: place_of(settings, wanted)(command)  # noqa: E731
    with _progress("installing") as progress:
        done = create_release(
            settings,
            locked,
            address,
            offline=offline,
            progress=progress,
            on_wait=_say_waiting,
            runner=runner,
        )
    if json:
        print_json(dataclasses.asdict(done))
    elif done.existed:
        out.print(f"{escape(str(done.prefix))} is there already")
    else:
        times = ", ".join(f"{step} {seconds:.1f} s" for step, seconds in done.seconds.items())
        out.print(
            f"{escape(str(done.prefix))}: {done.packages} packages, {done.compiled} modules "
            f"compiled ({times})"
        )


def list_envs(root: RootOption = None, json: JsonOption = False) -> None:
    """List complete releases, the default ones marked, and the user's clones."""
    from ddlce.env.layout import Layout, clones, read_origin

    layout = Layout(load_settings(root).root)
    rows = []
    for prefix in [*layout.releases(), *clones()]:
        record = read_origin(prefix)
        if record is None:  # removed while we looked
            continue
        rows.append(
            {
                "prefix": str(prefix),
                "kind": record.kind,
                "env": record.env,
                "release": record.release,
                "digest": record.digest,
                "default": layout.current(record.env) == prefix.resolve(),
            }
        )
    if json:
        print_json(rows)
        return
    for row in rows:
        mark = "*" if row["default"] else " "
        out.print(f"{mark} {row['kind']:<8} {row['env']} {row['release']}  {row['prefix']}")
    if not rows:
        err.print("no environments; make one with: ddlce env create")


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
    report = verify_prefix(prefix, settings, lock=trusted, quick=quick)
    if json:
        print_json({**dataclasses.asdict(report), "ok": report.ok})
    else:
        _show_report(report)
    if not report.ok:
        raise typer.Exit(1)


def clone(
    name: Annotated[str, typer.Argument(help="The new environment's name, or a path.")],
    source: Annotated[
        str | None,
        typer.Option("--from", help="What to copy; the active or default release otherwise."),
    ] = None,
    root: RootOption = None,
    json: JsonOption = False,
) -> None:
    """Make a writable copy of an environment, in seconds."""
    from ddlce.env.clone import clone as clone_env
    from ddlce.env.layout import default_source, find_env

    settings = load_settings(root)
    prefix = find_env(settings, source) if source else default_source(settings)
    with _progress("cloning") as progress:
        done = clone_env(settings, name, prefix, progress=progress, on_wait=_say_waiting)
    if json:
        print_json(dataclasses.asdict(done))
        return
    out.print(
        f"{escape(str(done.prefix))}: {done.packages} packages of {escape(str(done.source))} "
        f"({done.linked} files linked, {done.copied} its own)"
    )
    if done.reflinked:
        out.print(f"{done.reflinked} of its own share their data with the source until changed")
    if done.why_copied:
        out.print(f"all files are copies, which takes time and space: {escape(done.why_copied)}")
    out.print(f"use it:  conda activate {escape(str(done.prefix))}")


def install(
    name: Annotated[str, typer.Argument(help="A clone's name or path.")],
    specs: Annotated[list[str], typer.Argument(help="Package specs, e.g. 'numpy >=2'.")],
    root: RootOption = None,
    channel: ChannelOption = None,
    offline: OfflineOption = False,
    json: JsonOption = False,
) -> None:
    """Add packages from the channel to a clone."""
    from ddlce.env.change import install_specs
    from ddlce.env.layout import find_env
    from ddlce.lock import channel_address

    settings = load_settings(root)
    prefix = find_env(settings, name)
    with _progress("installing") as progress:
        done = install_specs(
            settings,
            prefix,
            specs,
            channel=channel_address(channel) if channel else None,
            offline=offline,
            progress=progress,
            on_wait=_say_waiting,
        )
    if json:
        print_json(dataclasses.asdict(done))
        return
    for package in done.removed:
        out.print(f"- {package}", markup=False)
    for package in done.added:
        out.print(f"+ {package}", markup=False)
    if not done.added and not done.removed:
        out.print("nothing to do: everything is there already")


def remove(
    name: Annotated[str, typer.Argument(help="A clone, or ENV/RELEASE-DIGEST.")],
    root: RootOption = None,
    json: JsonOption = False,
) -> None:
    """Remove a clone or an old release."""
    from ddlce.env.remove import remove as remove_env

    prefix = remove_env(load_settings(root), name, _say_waiting)
    if json:
        print_json({"removed": str(prefix)})
    else:
        out.print(f"removed {escape(str(prefix))}")


def gc(
    keep: Annotated[int, typer.Option("--keep", min=1, help="Releases to keep per ENV.")] = 1,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    root: RootOption = None,
    json: JsonOption = False,
) -> None:
    """Remove old releases, unused cached packages and leftovers of killed runs.

    What other users own, and releases that a process of this machine runs from, are kept.
    """
    from ddlce.env.remove import collect

    done = collect(load_settings(root), keep=keep, dry_run=dry_run, on_wait=_say_waiting)
    found = dataclasses.asdict(done)
    if json:
        print_json({**found, "dry_run": dry_run})
        return
    verb = "would remove" if dry_run else "removed"
    for path in [*done.releases, *done.leftovers]:
        out.print(f"{verb} {escape(str(path))}")
    for kept in done.kept:
        err.print(f"kept {escape(str(kept.path))}: {escape(kept.why)}")
    out.print(f"{verb} {len(done.releases)} releases, {len(done.packages)} cached packages")


def _check_current(settings: Settings, lock: Any) -> None:
    """Refuse a lock that was made from another manifest than the one there is now."""
    from ddlce.model.manifest import load_manifest

    path = settings.tree / "envs" / f"{lock.env}.yaml"
    if load_manifest(path).digest != lock.manifest:
        raise InputError(
            f"the lock of {lock.env} for {lock.platform} is older than {path}",
            f"lock it again: ddlce lock {lock.env}",
        )


def _say_waiting(who: str) -> None:
    err.print(f"waiting: {escape(who)} is at work here")


@contextlib.contextmanager
def _progress(verb: str) -> Iterator[Progress | None]:
    """A bar on a terminal, nothing elsewhere."""
    if not err.is_terminal:
        yield None
        return
    from rich.progress import Progress as Bars

    with Bars(console=err, transient=True) as bars:
        task = bars.add_task(verb, total=None)
        yield lambda done, total, what: bars.update(
            task, completed=done, total=total, description=f"{verb} {escape(what)}"
        )


def _show_report(report: Report) -> None:
    """Name every file that is wrong, one a line."""
    for problem in report.problems:
        out.print(f"problem   {problem}", markup=False)
    for label in ("modified", "missing", "writable"):
        for name in getattr(report, label):
            out.print(f"{label:<9} {name}", markup=False)
    if report.kind == "release":
        for name in report.extra:
            out.print(f"extra     {name}", markup=False)
    elif report.extra:
        out.print(f"{len(report.extra)} files of the clone's own, from no package")
    verdict = "[green]ok[/]" if report.ok else "[bold red]not ok[/]"
    out.print(f"{escape(str(report.prefix))}: {report.files} files checked: {verdict}")
