"""Making a plan: for the build platform, or for another one beside it."""

from __future__ import annotations

from ddlce.plan.beside import add_set, add_steps_beside, make_cuda_plan
from ddlce.plan.cross import make_cross_plan
from ddlce.plan.cross_cuda import make_cross_cuda_plan
from ddlce.plan.model import Plan
from ddlce.platforms import BUILD_PLATFORM
from ddlce.recipes import load_recipes
from ddlce.settings import Settings


def make_plan(
    settings: Settings, subdir: str = BUILD_PLATFORM, cuda: str = "", extra: str = ""
) -> Plan:
    """Read all recipes and say what must be built.

    Args:
        cuda: a version of CUDA, "13.0", whose packages are planned too; "" for none.
        extra: a set whose packages are planned too; "" for none.

    Raises:
        InputError: a recipe that does not parse, an unknown dependency, a cycle, a platform
            that no compiler is known for, a version of CUDA that there are no packages for,
            or no such set.
    """
    if extra:
        return add_set(settings, extra, make_plan(settings, subdir, cuda))
    if cuda and subdir != BUILD_PLATFORM:
        return make_cross_cuda_plan(settings, subdir, cuda, make_plan(settings))
    if cuda:
        return make_cuda_plan(settings, cuda, make_plan(settings))
    if subdir != BUILD_PLATFORM:
        return make_cross_plan(settings, subdir, make_plan(settings))
    return add_steps_beside(settings, load_recipes(settings), Plan({}, BUILD_PLATFORM))
