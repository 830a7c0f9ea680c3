"""Making a plan: for the build platform, or for another one beside it."""

from __future__ import annotations

from ddlce import digest as digests
from ddlce.engine.render import render
from ddlce.engine.variants import VARIANTS, load_variants
from ddlce.plan.beside import add_set
from ddlce.plan.cross import make_cross_plan
from ddlce.plan.cross_cuda import make_cross_cuda_plan
from ddlce.plan.cuda import make_cuda_plan
from ddlce.plan.graph import find_owners, order_of, refuse_unknown, with_run_exports
from ddlce.plan.model import Plan, Step
from ddlce.plan.steps import final_outputs, make_step
from ddlce.platforms import BUILD_PLATFORM
from ddlce.recipes import load_recipes
from ddlce.settings import Settings
from ddlce.store import Store


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
    recipes = load_recipes(settings, subdir)
    variants = load_variants(settings.recipes / VARIANTS)
    outputs = {
        name: [output for output, _ in render(recipe, variants, subdir)]
        for name, recipe in recipes.items()
    }
    outputs = with_run_exports({name: made for name, made in outputs.items() if made})
    owners = find_owners(recipes, outputs)
    refuse_unknown(recipes, outputs, owners.keys())
    graph = {n: {owners[d] for o in made for d in o.all_deps} for n, made in outputs.items()}
    store = Store(settings.store)
    steps: dict[str, Step] = {}
    for name in order_of(recipes, graph):
        below = {owners[d] for o in outputs[name] for d in o.build_deps | o.host_deps} - {name}
        parts = digests.digest_parts(
            recipes[name], outputs[name], {b: steps[b].digest for b in sorted(below)}
        )
        final = final_outputs(recipes[name], variants, subdir, digests.combine(parts))
        steps[name] = make_step(recipes[name], final, parts, graph[name] - {name}, store, subdir)
    return Plan(steps, subdir)
