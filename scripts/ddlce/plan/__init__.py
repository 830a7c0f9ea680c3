"""Plans: `make_plan` reads the recipes and says what must be built, in which order, and why."""

from ddlce.plan.make import make_plan
from ddlce.plan.model import Plan, Step
from ddlce.plan.offered import with_all_built
from ddlce.plan.steps import check_built, is_built

__all__ = [
    "Plan",
    "Step",
    "check_built",
    "is_built",
    "make_plan",
    "with_all_built",
]
