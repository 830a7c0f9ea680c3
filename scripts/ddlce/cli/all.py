"""`ddlce all`: the whole way of the data, from sources to a smoke-tested environment."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated

import typer

from ddlce.cli import lock, module
from ddlce.cli.build import JobsOption, default_jobs, run_build
from ddlce.cli.common import RootOption, out
from ddlce.cli.env.create import create
from ddlce.cli.index import print_index
from ddlce.errors import InputError
from ddlce.platforms import BUILD_PLATFORM
from ddlce.settings import Settings, load_settings


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("all", epilog="Example: ddlce all --root /opt/ddl-ce")(build_all)


def build_all(
    name: Annotated[str, typer.Argument(metavar="[ENV]", help="A manifest in envs/.")] = "ddl-ce",
    root: RootOption = None,
    jobs: JobsOption = 0,
    platform: Annotated[
        str | None,
        typer.Option("--platform", help="For another platform: cross-built, then run emulated."),
    ] = None,
) -> None:
    """Fetch, build, index, lock, install, write the module, smoke-test; only what changed."""
    from ddlce.channel import update_channel
    from ddlce.lock import read_manifest
    from ddlce.plan import make_plan, with_all_built
    from ddlce.recipes.sets import set_of

    settings = load_settings(root)
    manifest = read_manifest(settings, name)
    if platform and platform not in manifest.platforms:
        raise InputError(
            f"envs/{name}.yaml is not for {platform}, but for {', '.join(manifest.platforms)}",
            "add the platform there, with its glibc",
        )
    cuda = manifest.cuda(BUILD_PLATFORM)
    extra = set_of(settings, manifest.specs)
    # One plan for both: what is built is what is published, whatever is edited meanwhile.
    # Another platform's channel wants this one's beside it: they share noarch.
    plans = [make_plan(settings, cuda=cuda, extra=extra)]
    if platform:
        plans.append(make_plan(settings, platform))
    stages: list[tuple[str, Callable[[], object]]] = [
        (
            "fetch and build the packages whose inputs changed",
            lambda: [
                run_build(settings, plan, jobs or default_jobs(), keep_going=False)
                for plan in plans
            ],
        ),
        (
            "index the channel",
            lambda: print_index(
                settings,
                *update_channel(
                    settings, *(with_all_built(settings, plan, plans[0]) for plan in plans)
                ),
            ),
        ),
        ("lock the environment", lambda: lock.lock(name)),
        ("install it", lambda: create(name, root=root, platform=platform)),
        ("write its modulefiles", lambda: write_modules(settings, name, platform)),
        ("smoke-test it", lambda: smoke_once(settings, name, platform)),
    ]
    run_stages(stages)
    if platform:
        return
    out.print(
        "Next:\n"
        f"  module use {settings.root}/modulefiles/lua    # tcl for Environment Modules\n"
        f"  module load {name}\n"
        f"  ddlrun -H localhost:4 python -m ddl_ce_smoke.train"
    )


def run_stages(stages: list[tuple[str, Callable[[], object]]]) -> None:
    """Run each under its title, and say how long all took."""
    started = time.monotonic()
    for number, (title, stage) in enumerate(stages, 1):
        out.print(f"[bold]\\[{number}/{len(stages)}] {title}[/]")
        stage()
    out.print(f"[bold green]done[/] in {time.monotonic() - started:.0f} s.")


def write_modules(settings: Settings, name: str, platform: str | None) -> None:
    """Write the modulefiles; another platform's apart, since they shall not be loaded here."""
    from ddlce.smoke import find_release

    if platform is None:
        module.module(name, root=settings.root)
        return
    prefix = find_release(settings, name, platform)
    folder = settings.root / f"modulefiles-{platform}"
    module.module(str(prefix), root=settings.root, into=folder, name=name)


def smoke_once(settings: Settings, name: str, platform: str | None) -> None:
    """Run the smoke suite of an environment, unless this very release has passed it.

    Raises:
        WorkError: a part of the suite failed.
    """
    from ddlce.smoke import find_prefix, find_release, pass_once

    release = find_release(settings, name, platform) if platform else find_prefix(settings, name)
    page, is_new = pass_once(settings, release.resolve(), platform)
    if not is_new:
        out.print(f"smoke: this release has passed; again with: ddlce smoke {name}", markup=False)
    out.print(f"smoke: {page}", markup=False)
