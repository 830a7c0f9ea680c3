"""What a channel offers beside the plan that was built: CUDA variants that are all built."""

from __future__ import annotations

from dataclasses import replace

from ddlce.plan.cross_cuda import make_cross_cuda_plan, noarch_cuda_plan
from ddlce.plan.cuda import make_cuda_plan
from ddlce.plan.model import Plan
from ddlce.platforms import BUILD_PLATFORM
from ddlce.recipes import cuda_variants, load_cuda_recipes
from ddlce.settings import Settings


def with_built_cuda(settings: Settings, plan: Plan, native: Plan | None = None) -> Plan:
    """The plan with every CUDA variant whose packages are all built: a channel offers them too.

    All platforms share noarch. The build platform's plan gets other platforms' packages for CUDA
    that are in there: else an index of it alone would take them from the others.

    Args:
        settings: the folders.
        plan: of any platform.
        native: the build platform's, where the plan is another's.
    """
    steps = dict(plan.steps)
    planned = {step.recipe.cuda for step in plan.steps.values()}
    for subdir, cuda in cuda_variants(settings):
        if cuda in planned or plan.subdir not in (BUILD_PLATFORM, subdir):
            continue
        if subdir == BUILD_PLATFORM:
            found = make_cuda_plan(settings, cuda, plan)
        elif plan.subdir == BUILD_PLATFORM:
            found = _noarch(settings, subdir, cuda, plan)
        else:
            assert native is not None  # what another platform's plan stands on
            found = make_cross_cuda_plan(settings, subdir, cuda, native)
        added = {name: step for name, step in found.steps.items() if step.recipe.cuda == cuda}
        if all(step.reuse for step in added.values()):
            steps |= added
    return replace(plan, steps=steps)


def _noarch(settings: Settings, subdir: str, cuda: str, native: Plan) -> Plan:
    native = replace(native, steps={n: s for n, s in native.steps.items() if not s.recipe.cuda})
    return noarch_cuda_plan(settings, load_cuda_recipes(settings, cuda, subdir), native)
