"""The plan of a CUDA variant: the build platform's plan, and the packages for CUDA beside it.

A package for CUDA stands on the variant's build of each package that there is for CUDA, and on the
one build that there is of all others.
"""

from __future__ import annotations

from ddlce.plan.beside import add_steps_beside, without_cuda
from ddlce.plan.model import Plan
from ddlce.recipes import load_cuda_recipes
from ddlce.settings import Settings


def make_cuda_plan(settings: Settings, cuda: str, native: Plan) -> Plan:
    """The steps of the native plan, and those of a CUDA variant.

    Args:
        cuda: the version of CUDA, "13.0".
        native: the plan of the build platform; steps of another CUDA variant in it do not count.

    Raises:
        InputError: as `make_plan`; also where there is no such variant.
    """
    return add_steps_beside(settings, load_cuda_recipes(settings, cuda), without_cuda(native))
