"""What a channel offers beside a plan: CUDA variants and sets whose packages are all built."""

from __future__ import annotations

from dataclasses import replace

from ddlce.plan.beside import add_own_steps, make_cuda_plan, without_cuda
from ddlce.plan.cross_cuda import make_cross_cuda_plan, noarch_cuda_plan
from ddlce.plan.model import Plan, Step
from ddlce.platforms import BUILD_PLATFORM
from ddlce.recipes import cuda_variants, load_cuda_recipes
from ddlce.recipes.sets import set_names, sets_below
from ddlce.settings import Settings


def with_all_built(settings: Settings, plan: Plan, native: Plan | None = None) -> Plan:
    """The plan with every CUDA variant and set whose packages are all built: a channel offers them.

    All platforms share noarch. The build platform's plan gets other platforms' packages for CUDA
    that are in there: else an index of it alone would take them from the others.

    Args:
        plan: of any platform.
        native: the build platform's, where the plan is another's.
    """
    steps = dict(plan.steps)
    planned = {step.recipe.cuda for step in plan.steps.values()}
    for subdir, cuda in cuda_variants(settings):
        if cuda in planned or plan.subdir not in (BUILD_PLATFORM, subdir):
            continue
        if subdir == BUILD_PLATFORM:
            larger = make_cuda_plan(settings, cuda, plan)
        elif plan.subdir == BUILD_PLATFORM:
            larger = _noarch(settings, subdir, cuda, plan)
        else:
            assert native is not None  # what another platform's plan stands on
            larger = make_cross_cuda_plan(settings, subdir, cuda, native)
        added = {name: step for name, step in larger.steps.items() if step.recipe.cuda == cuda}
        if all(step.reuse for step in added.values()):
            steps |= added
    if plan.subdir == BUILD_PLATFORM:
        steps |= _built_sets(settings, plan)
    return replace(plan, steps=steps)


def _noarch(settings: Settings, subdir: str, cuda: str, native: Plan) -> Plan:
    recipes = load_cuda_recipes(settings, cuda, subdir)
    return noarch_cuda_plan(settings, recipes, without_cuda(native))


def _built_sets(settings: Settings, plan: Plan) -> dict[str, Step]:
    """The steps of the sets that are all built, by name."""
    steps: dict[str, Step] = {}
    plans = {"": plan}
    chains = [sets_below(settings, name) for name in set_names(settings)]
    for *below, name in sorted(chains, key=len):
        plans[name] = add_own_steps(settings, name, plans[below[-1] if below else ""])
        added = {n: step for n, step in plans[name].steps.items() if n not in plan.steps}
        if all(step.reuse for step in added.values()):
            steps |= added
    return steps
