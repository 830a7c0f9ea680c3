"""Steps beside a plan: packages that stand on those of a plan, and on which none of it stands."""

from __future__ import annotations

from dataclasses import replace

from ddlce import digest as digests
from ddlce.engine.render import render
from ddlce.engine.variants import VARIANTS, load_variants
from ddlce.errors import InputError
from ddlce.model.recipe import Recipe
from ddlce.plan.graph import find_owners, order_of, refuse_unknown, with_run_exports
from ddlce.plan.model import Plan
from ddlce.plan.steps import final_outputs, make_step
from ddlce.platforms import BUILD_PLATFORM
from ddlce.settings import Settings
from ddlce.store import Store


def without_cuda(plan: Plan) -> Plan:
    """The plan without the steps of any CUDA variant."""
    return replace(plan, steps={n: s for n, s in plan.steps.items() if not s.recipe.cuda})


def add_steps_beside(settings: Settings, recipes: dict[str, Recipe], native: Plan) -> Plan:
    """The native plan with recipes that nothing in it stands on.

    Args:
        recipes: those of a CUDA variant or of a set, or some of them.
        native: the plan of the build platform, with none of a CUDA variant.

    Raises:
        InputError: a package that no recipe makes, or a cycle.
    """
    variants, store = load_variants(settings.recipes / VARIANTS), Store(settings.store)
    rendered = {n: [o for o, _ in render(r, variants, native.subdir)] for n, r in recipes.items()}
    others = [output for step in native.steps.values() for output in step.outputs]
    outputs = with_run_exports({n: made for n, made in rendered.items() if made}, others)
    native_owners = {o.name: s.name for s in native.steps.values() for o in s.outputs}
    owners = {**native_owners, **find_owners(recipes, outputs)}
    refuse_unknown(recipes, outputs, owners.keys())
    graph = {n: {owners[d] for o in made for d in o.all_deps} - {n} for n, made in outputs.items()}
    steps = dict(native.steps)
    for name in order_of(recipes, {n: found & outputs.keys() for n, found in graph.items()}):
        below = {owners[d] for o in outputs[name] for d in o.build_deps | o.host_deps} - {name}
        known = {b: steps[b].digest for b in sorted(below)}
        parts = digests.digest_parts(recipes[name], outputs[name], known)
        final = final_outputs(recipes[name], variants, native.subdir, digests.combine(parts))
        steps[name] = make_step(recipes[name], final, parts, graph[name], store, native.subdir)
    return replace(native, steps=steps)


def add_set(settings: Settings, name: str, plan: Plan) -> Plan:
    """The plan with the packages of a set, which stand on those for CPUs.

    Args:
        name: the set.
        plan: the plan of the build platform; steps of CUDA variants in it stay.

    Raises:
        InputError: no such set, another platform, or as `make_plan`.
    """
    from ddlce.recipes.sets import load_set_recipes

    if plan.subdir != BUILD_PLATFORM:
        raise InputError(
            f"the set {name} is built on {BUILD_PLATFORM}, not for {plan.subdir}",
            f"leave --platform out: its noarch packages are there for {plan.subdir}, too",
        )
    recipes = load_set_recipes(settings, name)
    found = add_steps_beside(settings, recipes, without_cuda(plan)).steps
    return replace(plan, steps={**plan.steps, **{n: found[n] for n in found if n in recipes}})
