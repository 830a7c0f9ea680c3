"""A shell in the folder of a build, with the environment that its script sees."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from ddlce.builder.inputs import locked_sources
from ddlce.builder.machine import machine_programs
from ddlce.builder.scheduler import Scheduler
from ddlce.builder.worker import (
    LOADERS,
    MACHINE,
    build_environment,
    make_channel,
    make_home,
    render_job,
)
from ddlce.engine.build import debug_folder
from ddlce.errors import WorkError
from ddlce.plan import make_plan
from ddlce.platforms import BUILD_PLATFORM
from ddlce.runner import Runner
from ddlce.settings import Settings
from ddlce.sources.fetch import fetch_sources

#: What rattler-build writes into a work folder to set up the environment of a script.
ENV_SCRIPT = "build_env.sh"


def prepare(
    settings: Settings,
    name: str,
    fresh: bool,
    log: Callable[[str], None],
    subdir: str = BUILD_PLATFORM,
    cuda: str = "",
    extra: str = "",
) -> Path:
    """The work folder of `name`: as its last build left it, or made anew.

    Raises:
        InputError: no such recipe.
        WorkError: what it stands on is not built, or its environments do not solve.
    """
    plan = make_plan(settings, subdir, cuda, extra).restrict([name])
    step = [*plan.steps.values()][-1]
    staging = settings.work / f"{step.name}-{step.short}"
    kept = sorted(staging.glob(f"out/bld/*/work/{ENV_SCRIPT}"))
    if kept and not fresh:
        return kept[-1].parent
    missing = [s.name for s in plan.to_build if s is not step]
    if missing:
        raise WorkError(
            f"{name} stands on packages that are not built: {', '.join(missing)}",
            f"build them first: ddlce build {' '.join(missing)}",
        )
    fetch_sources(locked_sources(settings, [step.recipe]).values(), settings)
    scheduler = Scheduler(settings, plan, 1, False, lambda *_: None)
    job = scheduler.job(step, staging, settings.logs / f"{step.name}-debug.log")
    os.environ["RATTLER_CACHE_DIR"] = str(settings.cache / "rattler")
    shutil.rmtree(staging, ignore_errors=True)
    channel = make_channel(job)
    _, variant = render_job(job)[0]
    return debug_folder(variant, channel, staging / "out", log)


def enter(folder: Path, command: str | None, runner: Runner = list) -> int:
    """Run a shell, or one command, in a build's work folder; returns its exit code."""
    make_home(folder.parent)
    machine = folder.parent / MACHINE
    shutil.rmtree(machine, ignore_errors=True)
    env = build_environment(folder.parent) | {"TERM": os.environ.get("TERM", "dumb")}
    loaders = {name: os.environ[name] for name in LOADERS if name in os.environ}
    env["PATH"] = machine_programs(machine, env["PATH"], loaders)
    shell = ["bash", "--rcfile", ENV_SCRIPT, "-i"]
    if command is not None:
        shell = ["bash", "-c", f". ./{ENV_SCRIPT}\n{command}"]
    return subprocess.run(runner(shell), cwd=folder, env=env, check=False).returncode
