"""The plan of a CUDA variant for another platform: its own plan, and the packages for CUDA beside.

They come of Debian's packages for the platform (recipes/debs/cudaNNN.yaml). What is for CUDA and
noarch is the build platform's, as all that is noarch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ddlce.engine.render import Output
from ddlce.model.recipe import Recipe
from ddlce.plan.beside import add_steps_beside, without_cuda
from ddlce.plan.cross import NOARCH, Pool, add_steps, exporting, known_absent, plan_and_pool
from ddlce.plan.graph import find_owners, with_run_exports
from ddlce.plan.model import Plan
from ddlce.plan.steps import StepMaker
from ddlce.recipes import load_cuda_recipes
from ddlce.settings import Settings


def make_cross_cuda_plan(settings: Settings, subdir: str, cuda: str, native: Plan) -> Plan:
    """The steps of another platform's plan, and those of a CUDA variant for it.

    Args:
        subdir: the target, e.g. "linux-ppc64le".
        cuda: the version of CUDA, "12.4".
        native: the plan of the build platform; steps of a CUDA variant in it do not count.

    Raises:
        InputError: as `make_cross_plan`; also where the platform has no such variant.
    """
    native = without_cuda(native)
    recipes = load_cuda_recipes(settings, cuda, subdir)
    plan, pool = plan_and_pool(settings, subdir, native)
    key = cuda.replace(".", "")
    reasons = known_absent(
        settings, f"{subdir}-cuda{key}", {n.removesuffix(f"-cuda{key}") for n in recipes}
    )
    absent = {f"{name}-cuda{key}": reason for name, reason in reasons.items()}
    with_noarch = noarch_cuda_plan(settings, recipes, native)
    added = _pool(settings, subdir, recipes, pool, with_noarch, absent)
    others = [*exporting(with_noarch), *(o for made in pool.own.values() for o in made)]
    added.own |= with_run_exports({n: m for n, m in added.own.items() if n in recipes}, others)
    added.lose({o.name for step in native.steps.values() for o in step.outputs})
    owners = find_owners(recipes, {n: m for n, m in added.own.items() if n in recipes})
    owners = _owners(pool.own) | owners
    found = add_steps(settings, plan, added, recipes, owners, with_noarch)
    return replace(found, absent=plan.absent | dict(sorted(added.absent.items())))


def noarch_cuda_plan(settings: Settings, recipes: Mapping[str, Recipe], native: Plan) -> Plan:
    """The native plan, with those of a CUDA variant's recipes that make noarch packages alone."""
    outputs = StepMaker(settings).outputs(recipes)
    noarch = {n for n, made in outputs.items() if {o.subdir for o in made} == {NOARCH}}
    return add_steps_beside(settings, {n: r for n, r in recipes.items() if n in noarch}, native)


def _pool(
    settings: Settings,
    subdir: str,
    recipes: Mapping[str, Recipe],
    pool: Pool,
    with_noarch: Plan,
    absent: dict[str, str],
) -> Pool:
    """The target's packages with those for CUDA, available or not."""
    own = StepMaker(settings, subdir).outputs(
        {n: r for n, r in recipes.items() if n not in absent and n not in with_noarch.steps}
    )
    noarch = [step for n, step in with_noarch.steps.items() if n in recipes]
    shared = {o.name: step for step in noarch for o in step.outputs}
    return Pool(pool.own | own, pool.shared | shared, absent)


def _owners(own: Mapping[str, list[Output]]) -> dict[str, str]:
    """Package → the recipe that makes it."""
    return {output.name: recipe for recipe, made in own.items() for output in made}
