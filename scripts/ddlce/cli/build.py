"""`ddlce build`: build what the plan says."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Annotated

import typer

from ddlce.cli.cache import CacheOption, take_cached
from ddlce.cli.common import (
    CudaOption,
    JsonOption,
    PlatformOption,
    SetOption,
    app,
    err,
    out,
    print_json,
)
from ddlce.errors import print_error
from ddlce.platforms import BUILD_PLATFORM
from ddlce.settings import Settings, load_settings

if TYPE_CHECKING:
    from ddlce.plan import Plan


JobsOption = Annotated[
    int, typer.Option("--jobs", "-j", min=0, help="Recipes to build at once; 0: one per CPU.")
]


def default_jobs() -> int:
    """One recipe per CPU that we may use."""
    return len(os.sched_getaffinity(0))


@app.command(epilog="Example: ddlce build ddl --jobs 2")
def build(
    packages: Annotated[
        list[str] | None, typer.Argument(help="Recipes or packages; all by default.")
    ] = None,
    jobs: JobsOption = 0,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", "-k", help="After a failure, build what still can be.")
    ] = False,
    subdir: PlatformOption = BUILD_PLATFORM,
    cuda: CudaOption = "",
    extra: SetOption = "",
    cache: CacheOption = None,
    save_costs: Annotated[
        bool,
        typer.Option("--save-costs", help="Write recipes/costs.yaml: what others start first."),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Build, test and check the packages whose inputs changed, and what stands on them."""
    from ddlce.plan import make_plan

    settings = load_settings()
    plan = make_plan(settings, subdir, cuda, extra)
    if packages:
        plan = plan.restrict(packages)
    seconds = run_build(settings, plan, jobs or default_jobs(), keep_going, cache)
    if save_costs:
        from ddlce.builder import costs

        number = costs.save_costs(settings, plan)
        err.print(f"costs: {number} recipes, in {settings.recipes / costs.FILE}")
    if json:
        print_json({"built": {name: round(took, 1) for name, took in seconds.items()}})


def run_build(
    settings: Settings, plan: Plan, jobs: int, keep_going: bool, cache: str | None = None
) -> dict[str, float]:
    """Take from a cache, fetch and build what the plan says; returns seconds by built recipe.

    Args:
        jobs: how many recipes may build at once.
        keep_going: after a failure, build what still can be.

    Raises:
        WorkError: a package failed; it carries the last lines of the log.
    """
    from ddlce.builder.costs import where_time_went
    from ddlce.builder.display import display
    from ddlce.builder.failure import failure_error
    from ddlce.builder.inputs import locked_sources
    from ddlce.builder.scheduler import Scheduler, log_of
    from ddlce.errors import WorkError
    from ddlce.sources.fetch import fetch_sources

    if not plan.to_build:
        out.print(f"build: all {len(plan.steps)} recipes are built already")
        return {}
    plan = take_cached(settings, plan, cache)
    todo = plan.to_build
    if not todo:
        return {}
    started = time.monotonic()
    fetch_sources(locked_sources(settings, (s.recipe for s in todo)).values(), settings)
    err.print(f"build: {len(todo)} of {len(plan.steps)} recipes, {jobs} at once")
    with display(err) as watch:
        summary = Scheduler(settings, plan, jobs, keep_going, watch).run()
    for failure in summary.failures[:-1]:
        print_error(failure_error(failure))
    if summary.failures:
        error = failure_error(summary.failures[-1])
        if summary.skipped:
            error.message += f"\n  not built for this: {', '.join(summary.skipped)}"
        raise error
    if summary.skipped:
        raise WorkError(f"not built: {', '.join(summary.skipped)}")
    out.print(f"build: {len(summary.built)} recipes in {time.monotonic() - started:.0f} s")
    logs = {name: log_of(settings, plan.steps[name]) for name in summary.built}
    there = {name: path for name, path in logs.items() if path.is_file()}  # built elsewhere: none
    if there:
        out.print(f"time: {where_time_went(there)}", markup=False)
    return summary.built
