"""`ddlce env create`: install a lock as an immutable release."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from ddlce.cli.common import JsonOption, RootOption, err, out, print_json
from ddlce.cli.env._common import OfflineOption, progress_bar, say_waiting
from ddlce.cli.lock import ChannelOption
from ddlce.cli.signed import require_signed
from ddlce.errors import InputError
from ddlce.settings import Settings, load_settings

if TYPE_CHECKING:
    from ddlce.env.create import Created

NoDefaultOption = Annotated[
    bool,
    typer.Option("--no-default", help="As a candidate, of which users see nothing."),
]


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
    no_default: NoDefaultOption = False,
    source: Annotated[
        str | None,
        typer.Option(
            "--from", help="A site that `ddlce publish` wrote: its address or folder; no tree."
        ),
    ] = None,
    release: Annotated[
        str | None, typer.Option("--release", help="An earlier one, of the tree or of --from.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Install a lock as an immutable release, and make it the default one."""
    if source is None:
        lock = _lock_of(env, lock, platform, release) if release else lock
        install(env, lock, root, channel, offline, platform, no_default, json)
        return
    if lock or channel:
        raise InputError(
            f"--{'lock' if lock else 'channel'} does not go with --from",
            "leave it out: the site has a lock and a channel",
        )
    from ddlce.platforms import this_platform
    from ddlce.publish.read import fetched
    from ddlce.trust.policy import wanted_signatures

    settings = load_settings(root)
    with fetched(
        settings, source, env, platform or this_platform(), release, wanted_signatures()
    ) as got:
        install(
            *(env, got.lock, root, got.channel, offline, platform, no_default, json), tree=got.tree
        )


def install(
    env: str,
    lock: Path | None = None,
    root: Path | None = None,
    channel: str | None = None,
    offline: bool = False,
    platform: str | None = None,
    no_default: bool = False,
    json: bool = False,
    *,
    made_here: bool = False,
    tree: Path | None = None,
) -> None:
    """Do what the command does.

    Args:
        env, lock, root, channel, offline, platform, no_default, json: its arguments.
        made_here: the lock was just made here, so no signature is asked for.
        tree: the folder with the condarc template, instead of the source tree.
    """
    from ddlce.env.create import create as create_release
    from ddlce.env.create import missing_driver
    from ddlce.lock import channel_address, lock_path
    from ddlce.model.envlock import EnvLock
    from ddlce.platforms import this_platform
    from ddlce.runner import runner_of
    from ddlce.trust.names import lock_name

    settings = load_settings(root)
    if tree:
        settings = dataclasses.replace(settings, repo=tree, refused=None)
    wanted = platform or this_platform()
    locked = EnvLock.load(lock or lock_path(settings, env, wanted))
    if platform not in (None, locked.platform):
        raise InputError(
            f"{lock} is for {locked.platform}, not for {platform}",
            f"leave --lock out, or say --platform {locked.platform}",
        )
    if not lock:
        _check_current(settings, locked)
    if not made_here:
        require_signed(settings, {lock_name(locked): locked.digest})
    runner = None
    if wanted != this_platform():
        # Made ready when the first program is run: a release that exists needs no emulator.
        runner = lambda command: runner_of(settings, wanted)(command)  # noqa: E731
    with progress_bar("installing") as progress:
        created = create_release(
            settings,
            locked,
            channel_address(channel or settings.channel),
            offline=offline,
            progress=progress,
            on_wait=say_waiting,
            runner=runner,
            candidate=no_default,
        )
    _say(created, json)
    if wanted == this_platform() and (problem := missing_driver(locked)):
        err.print(f"note: {problem}", markup=False)


def _lock_of(env: str, lock: Path | None, platform: str | None, release: str) -> Path | None:
    """The lock of an earlier release of the tree; None for that of its own."""
    from ddlce.lock import find_lock, lock_path
    from ddlce.platforms import this_platform

    if lock:
        raise InputError(
            "--lock does not go with --release", "a lock has one release: leave it out"
        )
    settings, wanted = load_settings(), platform or this_platform()
    found = find_lock(settings, env, wanted, release)
    return found if found != lock_path(settings, env, wanted) else None


def _say(created: Created, json: bool) -> None:
    if json:
        print_json(dataclasses.asdict(created))
    elif created.existed:
        out.print(f"{escape(str(created.prefix))} is there already")
    else:
        times = ", ".join(f"{step} {seconds:.1f} s" for step, seconds in created.seconds.items())
        out.print(
            f"{escape(str(created.prefix))}: {created.packages} packages, "
            f"{created.compiled} modules compiled ({times})"
        )


def _check_current(settings: Settings, lock: Any) -> None:
    """Refuse a lock that was made from another manifest than the one there is now."""
    from ddlce.model.manifest import load_manifest

    path = settings.tree / "envs" / f"{lock.env}.yaml"
    if load_manifest(path).digest != lock.manifest:
        raise InputError(
            f"the lock of {lock.env} for {lock.platform} is older than {path}",
            f"lock it again: ddlce lock {lock.env}",
        )
