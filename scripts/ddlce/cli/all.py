"""`ddlce all`: the whole way of the data, from sources to a smoke-tested environment."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from ddlce.cli import lock
from ddlce.cli import module as modules
from ddlce.cli.build import JobsOption, default_jobs, run_build
from ddlce.cli.cache import CacheOption
from ddlce.cli.common import RootOption, app, out
from ddlce.cli.env.create import NoDefaultOption, install
from ddlce.cli.env.default import default
from ddlce.cli.index import print_index
from ddlce.errors import InputError
from ddlce.platforms import BUILD_PLATFORM, this_platform
from ddlce.settings import Settings, load_settings


@app.command("all", epilog="Example: ddlce all --root /opt/ddl-ce")
def build_all(
    name: Annotated[str, typer.Argument(metavar="[ENV]", help="A manifest in envs/.")] = "ddl-ce",
    root: RootOption = None,
    jobs: JobsOption = 0,
    platform: Annotated[
        str | None,
        typer.Option("--platform", help="For another platform: cross-built, then run emulated."),
    ] = None,
    no_default: NoDefaultOption = False,
    cache: CacheOption = None,
) -> None:
    """Fetch, build, index, lock, install, smoke-test, make it the default; only what changed."""
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
                run_build(settings, plan, jobs or default_jobs(), keep_going=False, cache=cache)
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
        ("install it", lambda: install_own(name, root, platform)),
        ("smoke-test it", lambda: smoke_once(settings, name, platform)),
        (
            "write its modulefiles" if platform or no_default else "make it the default release",
            lambda: offer(settings, name, platform, no_default=no_default),
        ),
    ]
    run_stages(stages)
    if not platform:
        say_next(settings, name)


def install_own(name: str, root: Path | None, platform: str | None) -> None:
    """Install what was locked here: it wants no signature. Users get it when it has passed."""
    install(name, root=root, platform=platform, no_default=True, made_here=True)


def run_stages(stages: list[tuple[str, Callable[[], object]]]) -> None:
    """Run each under its title, and say how long all took."""
    started = time.monotonic()
    for number, (title, stage) in enumerate(stages, 1):
        out.print(f"[bold]\\[{number}/{len(stages)}] {title}[/]")
        stage()
    out.print(f"[bold green]done[/] in {time.monotonic() - started:.0f} s.")


def offer(settings: Settings, name: str, platform: str | None, *, no_default: bool) -> None:
    """Make the release the default one, with its modulefiles, or write these alone.

    Those of another platform's release are apart, since they shall not be loaded here.
    """
    from ddlce.env.layout import Layout
    from ddlce.modulefile.install import module_of_other
    from ddlce.smoke import find_release

    release = find_release(settings, name, platform or this_platform())
    prefix = str(release)
    if platform:
        folder = settings.root / f"modulefiles-{platform}"
        modules.module(prefix, root=settings.root, into=folder, name=name)
    elif no_default and (other := module_of_other(Layout(settings.root), release)):
        out.print(f"no modulefile for {prefix}: that version's is for {other}", markup=False)
    elif no_default:
        modules.module(prefix, root=settings.root)
    else:
        default(prefix, root=settings.root)


def say_next(settings: Settings, name: str) -> None:
    """How the release is loaded, and offered to users where it is a candidate."""
    from ddlce.env.layout import Layout, require_origin
    from ddlce.smoke import find_release

    layout, prefix = Layout(settings.root), find_release(settings, name, this_platform())
    is_candidate = layout.is_candidate(prefix)
    version = f"/{require_origin(prefix).release}" if is_candidate else ""
    out.print(
        "Next:\n"
        f"  module use {quote(f'{layout.modulefiles(candidates=is_candidate)}/lua')}"
        "    # tcl for Environment Modules\n"
        f"  module load {name}{version}\n"
        f"  ddlrun -H localhost:4 python -m ddl_ce_smoke.train",
        markup=False,
    )
    if is_candidate:
        out.print(f"Users get it by:  ddlce env default {name}/{prefix.name}", markup=False)


def smoke_once(settings: Settings, name: str, platform: str | None) -> None:
    """Run the smoke suite of an environment, unless this very release has passed it.

    Raises:
        WorkError: a part of the suite failed.
    """
    from ddlce.smoke import find_release, pass_once

    release = find_release(settings, name, platform or this_platform())
    page, is_new = pass_once(settings, release, platform)
    if not is_new:
        again = f"ddlce smoke {name}/{release.name}"
        out.print(f"smoke: this release has passed; again with: {again}", markup=False)
    out.print(f"smoke: {page}", markup=False)
